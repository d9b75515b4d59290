"""What this node measured of codecs, and which of them its sessions get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.fleet.placement.codec_choice import (
    CodecDecision,
    Standing,
    decided,
    first_standing,
    wanted,
)
from kakeya_fleet.fleet.placement.codec_ladder import (
    LADDER,
    NOTHING,
    Divergence,
    PackedQuality,
)
from kakeya_fleet.fleet.placement.packing import Packing
from kakeya_fleet.node.planning.codec_store import (
    MOST_MODELS,
    CodecStore,
    Measured,
    ModelKey,
    Stood,
)
from kakeya_fleet.node.planning.kv_quality import packing_of


def model_key(info: VerifierInfo) -> ModelKey:
    """What a verifier's measurements are kept by."""
    arithmetic = " ".join(filter(None, (info.backend, info.dtype, info.quantization)))
    return ModelKey(info.weights_digest, arithmetic)


@dataclass(frozen=True, slots=True)
class CodecChange:
    """A quality of a model has another codec from now on, and why."""

    quality: PackedQuality
    before: str
    after: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rung:
    """A codec of a model: what was measured, when (seconds since 1970, 0 for never).

    `qualities` have it now, for `reasons`.
    """

    codec: str
    divergence: Divergence
    measured_at: float
    qualities: tuple[PackedQuality, ...]
    reasons: tuple[str, ...]


class CodecLedger:
    """By model: what was measured of each codec, and where each quality stands.

    Belongs to the event loop's thread, which never waits for the disk: `record` and `reset`
    write in another.
    """

    def __init__(self, store: CodecStore | None, clock: Callable[[], float]) -> None:
        """Reads the store, None where nothing is kept; `clock` gives seconds since 1970."""
        self._store = store
        self._clock = clock
        self._writing = asyncio.Lock()
        measured, standings = store.load() if store is not None else ([], [])
        self._measured = {(each.model, each.codec): each for each in measured}
        self._standings = {(each.model, each.quality): each.standing for each in standings}

    def standing(self, model: ModelKey, quality: PackedQuality) -> Standing:
        """Where a quality stands."""
        return self._standings.get((model, quality), first_standing(quality))

    def packing(self, model: ModelKey, quality: PackedQuality, pinned: str = "") -> Packing:
        """How a new session of a quality packs; by the `pinned` codec where it names one."""
        codec = pinned or self.standing(model, quality).codec
        return packing_of(codec, quality, self.divergence(model, codec))

    def divergence(self, model: ModelKey, codec: str) -> Divergence:
        """What was measured of a codec."""
        found = self._measured.get((model, codec))
        return NOTHING if found is None else found.divergence

    def wanted(self, model: ModelKey, quality: PackedQuality) -> tuple[str, ...]:
        """The codecs to measure next for a quality, the most wanted first; none when settled."""
        return wanted(self.standing(model, quality), self._of(model))

    def decision(self, model: ModelKey, quality: PackedQuality) -> CodecDecision:
        """Why a quality has its codec; made and not taken."""
        return decided(quality, self.standing(model, quality), self._of(model))

    def rungs(self, model: ModelKey) -> tuple[Rung, ...]:
        """Every codec of the ladder, from most bits to fewest."""
        decisions = {quality: self.decision(model, quality) for quality in PackedQuality}
        return tuple(self._rung(model, codec, decisions) for codec in LADDER)

    async def record(
        self, model: ModelKey, codec: str, nats: Sequence[float]
    ) -> tuple[CodecChange, ...]:
        """Adds positions of a codec, finite and not below 0; what changed by them.

        They count at once, and are kept on return.
        """
        found = self.divergence(model, codec).with_samples(nats)
        row = Measured(model, codec, found, self._clock())
        self._measured[model, codec] = row
        changes, stood = self._settle(model)
        self._bound()
        await self._write(lambda store: store.keep([row], stood))
        return changes

    async def reset(self, weights_digest: str = "") -> int:
        """Forgets what was measured of a model, or of all without a digest; how many codecs."""
        gone = [key for key in self._measured if weights_digest in ("", key[0].weights_digest)]
        for key in gone:
            del self._measured[key]
        self._standings = {
            key: standing
            for key, standing in self._standings.items()
            if weights_digest not in ("", key[0].weights_digest)
        }
        await self._write(lambda store: store.forget(weights_digest))
        return len(gone)

    def _of(self, model: ModelKey) -> dict[str, Divergence]:
        return {codec: self.divergence(model, codec) for codec in LADDER}

    def _settle(self, model: ModelKey) -> tuple[tuple[CodecChange, ...], list[Stood]]:
        """Takes what is decided now: another quality may have measured the next codec already."""
        changes, stood = [], []
        for quality in PackedQuality:
            while (decision := self.decision(model, quality)).moved:
                before, after = self.standing(model, quality), decision.standing
                self._standings[model, quality] = after
                stood.append(Stood(model, quality, after))
                changes.append(CodecChange(quality, before.codec, after.codec, decision.reasons))
        return tuple(changes), stood

    def _bound(self) -> None:
        """Forgets the models that were measured longest ago, above as many as the store keeps."""
        latest: dict[ModelKey, float] = {}
        for (model, _), row in self._measured.items():
            latest[model] = max(row.at, latest.get(model, 0.0))
        for model in sorted(latest, key=latest.__getitem__)[: max(0, len(latest) - MOST_MODELS)]:
            for codec in LADDER:
                self._measured.pop((model, codec), None)
            for quality in PackedQuality:
                self._standings.pop((model, quality), None)

    def _rung(
        self, model: ModelKey, codec: str, decisions: dict[PackedQuality, CodecDecision]
    ) -> Rung:
        row = self._measured.get((model, codec))
        users = tuple(
            quality for quality in PackedQuality if self.standing(model, quality).codec == codec
        )
        reasons = tuple(
            f"{quality.value}: {reason}"
            for quality in users
            for reason in decisions[quality].reasons
        )
        return Rung(
            codec,
            NOTHING if row is None else row.divergence,
            0.0 if row is None else row.at,
            users,
            reasons,
        )

    async def _write(self, change: Callable[[CodecStore], None]) -> None:
        """In the order of the calls, and to the end whoever leaves."""
        store = self._store
        if store is None:
            return
        async with self._writing:
            await asyncio.shield(asyncio.to_thread(change, store))

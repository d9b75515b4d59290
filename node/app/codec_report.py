"""What the node's verifiers measured of codecs, as it travels; and the way to be rid of it."""

from __future__ import annotations

import math

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.planning.codec_ledger import Rung, model_key
from kakeya_fleet.node.planning.kv_quality import bits_of, quality_to_wire
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier


class CodecReport:
    """Belongs to the event loop's thread."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def lines(self) -> list[wire.MeasuredCodec]:
        """By model, then from most bits to fewest; of those that are served now."""
        ledger = self._roles.verifier.codecs
        return [
            _line(model_id, served, rung)
            for model_id, served in sorted(self._roles.verifiers.items())
            for rung in ledger.rungs(model_key(served.verifier.info))
        ]

    async def reset(self, model_id: str) -> int:
        """Forgets what was measured of a model, of all with an empty id; how many codecs.

        Raises `ModelNotFound`.
        """
        return await self._roles.verifier.reset_codecs(self._digest(model_id))

    def _digest(self, model_id: str) -> str:
        if not model_id:
            return ""
        served = self._roles.verifiers.get(model_id)
        if served is None:
            known = ", ".join(sorted(self._roles.verifiers)) or "none"
            raise ModelNotFound(
                f"no verifier {model_id[:64]!r} is served here; served: {known}",
                model_id=model_id[:64],
                served=known,
            )
        return served.verifier.info.weights_digest


def _line(model_id: str, served: ServedVerifier, rung: Rung) -> wire.MeasuredCodec:
    model, found = model_key(served.verifier.info), rung.divergence
    return wire.MeasuredCodec(
        model_id=model_id,
        weights_digest=model.weights_digest,
        arithmetic=model.arithmetic,
        codec=rung.codec,
        bits=bits_of(rung.codec),
        position_count=found.count,
        divergence_nats=found.mean,
        error_nats=found.error if math.isfinite(found.error) else 0.0,
        qualities=[quality_to_wire(quality) for quality in rung.qualities],
        reasons=rung.reasons,
        measured_at_unix=rung.measured_at,
        is_settled=found.is_settled,
    )

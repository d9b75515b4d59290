"""What `fleet check` does: loads a verifier in this process, proves it and measures it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kakeya_fleet.engine.backends import device_facts, load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.device import DeviceFacts
from kakeya_fleet.engine.contracts.verifier import Verifier, VerifierInfo
from kakeya_fleet.engine.speculation.stream_proof import StreamProof, prove_streams
from kakeya_fleet.engine.verifiers.calibration import measure_steps
from kakeya_fleet.engine.verifiers.exactness import Exactness, settle
from kakeya_fleet.engine.verifiers.prefill_speed import prefill_tokens_per_second
from kakeya_fleet.node.roles.verifier.verifier_loading import choose_threads


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What is to be checked, as `fleet join` would serve it."""

    model: str
    backend: str
    device: str
    dtype: str
    weights: str
    seed: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second; `block_seconds` is one forward of the `block_tokens` that verify a draft."""

    decode_tokens_per_second: float
    prefill_tokens_per_second: float
    block_tokens: int
    block_seconds: float

    @property
    def block_over_token(self) -> float:
        """How many single tokens' time a whole block takes."""
        return self.block_seconds * self.decode_tokens_per_second


@dataclass(frozen=True, slots=True)
class Checked:
    """All that was found. `device` has the memory that was free behind the load."""

    info: VerifierInfo
    device: DeviceFacts
    weights: str
    row_counts_tried: tuple[int, ...]
    exactness: Exactness
    streams: StreamProof
    speed: Speed
    load_seconds: float

    @property
    def holds(self) -> bool:
        """Whether the promise is kept here: the history alone decides the stream."""
        return self.exactness.exact and self.streams.holds


def check(options: CheckOptions, said: Callable[[str], None]) -> Checked:
    """Loads, proves, measures; `said` hears what begins. The thread is the caller's.

    Raises a `ModelUnusable`, `BadParameters` or `OutOfKvMemory`.
    """
    clock = time.perf_counter
    folder = resolve_model(options.model, dtype=options.dtype)
    said(f"loading {folder.model_id}")
    began = clock()
    verifier = load_verifier(
        folder,
        backend=options.backend,
        device=options.device,
        dtype=options.dtype,
        weights=options.weights,
    )
    load_seconds = clock() - began
    device = device_facts(options.device, backend=options.backend)
    tried = verifier.row_counts
    choose_threads(verifier, clock)
    said("finding the forwards that give the same bits")
    exactness = settle(verifier, seed=options.seed)
    said("running streams with a drafter that lies, and with a history in pieces")
    streams = prove_streams(verifier, seed=options.seed)
    said("measuring")
    return Checked(
        info=verifier.info,
        device=device,
        weights=options.weights,
        row_counts_tried=tried,
        exactness=exactness,
        streams=streams,
        speed=_speed(verifier, clock),
        load_seconds=load_seconds,
    )


def _speed(verifier: Verifier, clock: Callable[[], float]) -> Speed:
    steps = dict(measure_steps(verifier, clock))
    widest = max(steps)
    return Speed(
        decode_tokens_per_second=1 / steps[1],
        prefill_tokens_per_second=prefill_tokens_per_second(verifier, clock),
        block_tokens=widest,
        block_seconds=steps[widest],
    )

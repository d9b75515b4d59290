"""The order in which segments are read: chunk by chunk, in runs of equal segments. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS


@dataclass(frozen=True, slots=True)
class Run:
    """Segments `first` to `last` (exclusive) of `keys` slots each."""

    first: int
    last: int
    keys: int


Chunks = tuple[tuple[Run, ...], ...]
"""What is in memory at once of the scores, in ascending order."""


def chunks(segments: tuple[int, ...], most: int = CHUNK_KEYS) -> Chunks:
    """Segments in chunks of at most `most` keys, or of one; those in runs of equal segments.

    The borders depend on the slots alone, so that the order of additions does too.
    """
    found: list[tuple[Run, ...]] = []
    runs: list[Run] = []
    total = 0
    for index, keys in enumerate(segments):
        if total + keys > most and runs:
            found.append(tuple(runs))
            runs, total = [], 0
        total += keys
        if runs and runs[-1].keys == keys:
            runs[-1] = Run(runs[-1].first, index + 1, keys)
        else:
            runs.append(Run(index, index + 1, keys))
    return (*found, tuple(runs))


def cut(all_chunks: Chunks, used: int) -> Chunks:
    """The part of `all_chunks` that covers the first `used` segments."""
    kept = (
        tuple(Run(run.first, min(run.last, used), run.keys) for run in chunk if run.first < used)
        for chunk in all_chunks
    )
    return tuple(chunk for chunk in kept if chunk)

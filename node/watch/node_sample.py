"""What a node did in a second, and the latest minutes of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kakeya_fleet.node.watch.cpu_use import CpuUse

SAMPLE_SECONDS = 1.0
KEPT_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class Totals:
    """What only grows since the node's start."""

    generated_token_count: int = 0
    prefilled_token_count: int = 0
    drafted_count: int = 0
    accepted_count: int = 0
    verify_forward_count: int = 0
    draft_count: int = 0
    """Blocks that were drafted here for any node."""
    link_bytes: int = 0
    """Bytes of tensors that links carried, either way."""


@dataclass(frozen=True, slots=True)
class Levels:
    """What a node holds at a moment."""

    session_count: int = 0
    generating_count: int = 0
    draft_stream_count: int = 0
    kv_bytes: int = 0
    memory_free_bytes: int = 0
    archive_bytes: int = 0
    cpu: CpuUse = field(default_factory=CpuUse)
    """Over the second that ends now."""
    accelerator_share: float | None = None
    """Of the time in which it had work, 0 to 1; None where that is not known."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    """A second that ended at `at_unix`, in seconds since 1970: rates are its means."""

    at_unix: float
    levels: Levels
    tokens_per_second: float
    prefill_tokens_per_second: float
    drafted_count: int
    accepted_count: int
    verify_forward_count: int
    drafts_per_second: float
    link_bytes_per_second: float


def sample_between(
    before: Totals, after: Totals, seconds: float, levels: Levels, at_unix: float
) -> NodeSample:
    """The sample of the `seconds` > 0 in which the totals went from `before` to `after`."""
    return NodeSample(
        at_unix=at_unix,
        levels=levels,
        tokens_per_second=(after.generated_token_count - before.generated_token_count) / seconds,
        prefill_tokens_per_second=(
            (after.prefilled_token_count - before.prefilled_token_count) / seconds
        ),
        drafted_count=after.drafted_count - before.drafted_count,
        accepted_count=after.accepted_count - before.accepted_count,
        verify_forward_count=after.verify_forward_count - before.verify_forward_count,
        drafts_per_second=(after.draft_count - before.draft_count) / seconds,
        link_bytes_per_second=(after.link_bytes - before.link_bytes) / seconds,
    )


class SampleRing:
    """The samples of the latest `KEPT_SECONDS`, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[NodeSample] = deque(maxlen=int(KEPT_SECONDS / SAMPLE_SECONDS))

    def add(self, sample: NodeSample) -> None:
        """Adds the latest second."""
        self._samples.append(sample)

    def latest(self, seconds: float) -> tuple[NodeSample, ...]:
        """The samples of the latest `seconds`, oldest first."""
        count = min(len(self._samples), round(seconds / SAMPLE_SECONDS))
        return tuple(self._samples)[len(self._samples) - count :]

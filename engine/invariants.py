"""The promises that a session checks at each step, and how often it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.cache import CacheSpec, KvCache
from kakeya_fleet.engine.contracts.positions import contiguous_placement
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.errors import InvariantViolated

HISTORY_CACHE_AGREEMENT = "history_cache_agreement"
BOUNDED_KV_MEMORY = "bounded_kv_memory"
CONTIGUOUS_COMMIT = "contiguous_commit"
FINITE_LOGITS = "finite_logits"
INVARIANTS = (HISTORY_CACHE_AGREEMENT, BOUNDED_KV_MEMORY, CONTIGUOUS_COMMIT, FINITE_LOGITS)


@dataclass(frozen=True, slots=True)
class InvariantCount:
    """How often a session checked the promise `invariant`, and found it broken."""

    invariant: str
    check_count: int
    violation_count: int


class CheckedInvariants:
    """The promises of one session, counted as it checks them.

    One thread checks at a time; any may ask for the counts.
    """

    def __init__(self) -> None:
        self._checks = dict.fromkeys(INVARIANTS, 0)
        self._violations = dict.fromkeys(INVARIANTS, 0)

    @property
    def counts(self) -> tuple[InvariantCount, ...]:
        """Each promise, in the order of `INVARIANTS`."""
        return tuple(
            InvariantCount(name, self._checks[name], self._violations[name]) for name in INVARIANTS
        )

    def cache(self, cache: KvCache, computed: int, history_length: int, bounds: ByteBounds) -> None:
        """`check_agreement`, then `check_memory`."""
        with self.checking(HISTORY_CACHE_AGREEMENT):
            check_agreement(cache, computed, history_length)
        with self.checking(BOUNDED_KV_MEMORY):
            check_memory(cache, bounds)

    def commit(self, history: Sequence[int], first_index: int, announced: Sequence[int]) -> None:
        """`check_contiguous`."""
        with self.checking(CONTIGUOUS_COMMIT):
            check_contiguous(history, first_index, announced)

    @contextmanager
    def checking(self, invariant: str) -> Iterator[None]:
        """Around what checks this promise, and raises `InvariantViolated` when it is broken."""
        self._checks[invariant] += 1
        try:
            yield
        except InvariantViolated:
            self._violations[invariant] += 1
            raise


def check_agreement(cache: KvCache, expected_length: int, history_length: int) -> None:
    """The cache holds what was computed, and never the history's last token.

    The last token is fed with the next block. Raises `InvariantViolated`.
    """
    if cache.length != expected_length or cache.length > max(0, history_length - 1):
        raise InvariantViolated(
            f"the cache holds {cache.length} positions, {expected_length} were computed"
            f" for a history of {history_length}",
            invariant=HISTORY_CACHE_AGREEMENT,
        )


def resident_bound(spec: CacheSpec, length: int) -> int:
    """Positions below `length` that the cache's rule may keep resident."""
    if not spec.keeps_all:
        return min(length, spec.sink + spec.window + spec.tile - 1)
    return length


@dataclass(frozen=True, slots=True)
class ByteBounds:
    """The fewest and the most bytes that a cache's tensors may take."""

    least: int
    most: int


def grown_bounds(info: VerifierInfo, length: int, reached: int) -> ByteBounds:
    """Of a cache that grows, of `length` positions now and `reached` at most so far.

    Whole segments of the layers that see all of the history, for every position
    reached; and what is fixed besides, of which only the most is known.
    """
    slots = contiguous_placement(max(1, reached)).slots
    return ByteBounds(
        least=length * info.kv_bytes_per_token,
        most=slots * info.kv_bytes_per_token + info.kv_fixed_bytes,
    )


def check_memory(cache: KvCache, bounds: ByteBounds) -> None:
    """The K/V keep to their bytes, counted at the tensors, and to the window.

    Raises `InvariantViolated`.
    """
    if not bounds.least <= cache.memory_bytes <= bounds.most:
        raise InvariantViolated(
            f"the K/V take {cache.memory_bytes} bytes, not {bounds.least} to {bounds.most}",
            invariant=BOUNDED_KV_MEMORY,
        )
    bound = resident_bound(cache.spec, cache.length)
    if cache.resident > bound:
        raise InvariantViolated(
            f"{cache.resident} positions are resident, the cache's rule keeps {bound}",
            invariant=BOUNDED_KV_MEMORY,
        )


def check_contiguous(history: Sequence[int], first_index: int, announced: Sequence[int]) -> None:
    """The history ends with the announced tokens, at the announced position.

    Raises `InvariantViolated`.
    """
    end = first_index + len(announced)
    if len(history) != end or list(history[first_index:end]) != list(announced):
        raise InvariantViolated(
            f"{len(announced)} tokens were announced at {first_index},"
            f" the history has {len(history)} and does not end with them",
            invariant=CONTIGUOUS_COMMIT,
        )

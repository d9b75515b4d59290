"""A verifier that keeps no keys: every forward reads the whole history again.

The oracle that caches are tested against, and the slow side of the benchmark of
what they save.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Never

from kakeya_fleet.engine.contracts.cache import CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, Verifier, VerifierInfo
from kakeya_fleet.engine.errors import BadParameters, KvStrategyUnsupported
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool


class RecomputingCache:
    """The tokens of a history, and no keys or values between forwards."""

    def __init__(self, spec: CacheSpec, widest: int) -> None:
        """For at most `widest` tokens a forward."""
        self._spec = spec
        self._widest = widest
        self._tokens: list[int] = []
        self._truncatable_from = 0

    @property
    def spec(self) -> CacheSpec:
        """What each forward allocates anew."""
        return self._spec

    @property
    def tokens(self) -> list[int]:
        """The history."""
        return self._tokens

    @property
    def length(self) -> int:
        """Positions fed, provisional ones included."""
        return len(self._tokens)

    @property
    def resident(self) -> int:
        """Nothing stays."""
        return 0

    @property
    def memory_bytes(self) -> int:
        """Nothing stays."""
        return 0

    @property
    def slabs(self) -> tuple[Slab[Any], ...]:
        """Nothing stays."""
        return ()

    @property
    def freed_bytes(self) -> int:
        """Nothing stays."""
        return 0

    @property
    def evicted(self) -> EvictedStore | None:
        """Nothing stays, so nothing is evicted."""
        return None

    @property
    def widest(self) -> int:
        """The most tokens of one forward."""
        return self._widest

    @property
    def forkable_from(self) -> int:
        """Tokens are all kept."""
        return 0

    @property
    def reach(self) -> int:
        """No position keeps memory, so none waits for it."""
        return sys.maxsize

    def keys_values(self, first: int, end: int) -> None:  # noqa: ARG002 - the contract's
        """It has none."""
        return

    def take_keys_values(self, count: int, numbers: KeysValues) -> Never:  # noqa: ARG002
        """Raises `KvStrategyUnsupported`."""
        raise KvStrategyUnsupported("this cache takes no keys and values")

    def growth_bytes(self, count: int) -> int:  # noqa: ARG002 - the contract's
        """Nothing stays."""
        return 0

    def grow(self, count: int) -> None:
        """Nothing stays, so nothing is taken."""

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions; `ValueError` outside the last forward's range."""
        if not self._truncatable_from <= length <= self.length:
            raise ValueError(
                f"cannot keep {length} positions: only {self._truncatable_from} to {self.length}"
            )
        del self._tokens[length:]

    def extend(self, token_ids: Sequence[int]) -> None:
        """Adds the tokens of a forward."""
        self._truncatable_from = self.length
        self._tokens.extend(token_ids)

    def fork(self, length: int) -> RecomputingCache:
        """A cache of the first `length` positions."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot fork {length} positions of {self.length}")
        forked = RecomputingCache(self._spec, self._widest)
        forked.extend(self._tokens[:length])
        forked._truncatable_from = length
        return forked

    def fork_bytes(self, length: int) -> int:  # noqa: ARG002 - the contract's
        """Nothing stays."""
        return 0

    def fill(self, count: int, seed: int) -> None:  # noqa: ARG002 - the contract's
        """There are no keys to fill: raises `ValueError`."""
        raise ValueError("a cache that recomputes has no keys to fill")

    def release(self) -> None:
        """Forgets the history."""
        self._tokens.clear()


class RecomputingVerifier:
    """`verifier` without its caches between forwards: `use_kv_cache` off.

    Logits are those of `verifier`, bit for bit: the history alone decides them.
    """

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        return self._verifier.info

    @property
    def pool(self) -> SlabPool[Any]:
        """Where each forward takes the memory that it gives back at its end."""
        return self._verifier.pool

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Those of the verifier."""
        return self._verifier.row_counts

    def use_row_counts(self, row_counts: Sequence[int]) -> None:
        """Restricts the verifier."""
        self._verifier.use_row_counts(row_counts)

    @property
    def thread_count(self) -> int:
        """Those of the verifier."""
        return self._verifier.thread_count

    def shallow(self) -> RecomputingVerifier:
        """That of the verifier."""
        return RecomputingVerifier(self._verifier.shallow())

    def allocate(self, spec: CacheSpec, evicted: EvictedStore | None = None) -> RecomputingCache:
        """A new, empty history. Raises what the verifier's own `allocate` raises.

        And `KvStrategyUnsupported` with a store: each forward would need a new one.
        """
        if evicted is not None:
            raise KvStrategyUnsupported("a verifier that recomputes makes its stores itself")
        scratch = self._verifier.allocate(spec)
        widest = scratch.widest
        scratch.release()
        return RecomputingCache(spec, widest)

    def evicted_shape(self, spec: CacheSpec) -> EvictedShape:
        """That of the verifier."""
        return self._verifier.evicted_shape(spec)

    def bytes_needed(self, spec: CacheSpec) -> int:  # noqa: ARG002 - the contract's
        """Nothing stays between forwards."""
        return 0

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """`forward_batch` of one feed without taps; its logits."""
        return self.forward_batch([Feed(cache, token_ids, want_logits)])[0].logits

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Recomputes each feed's history in a cache of its own, then runs its tokens."""
        caches = [_own(feed.cache) for feed in feeds]
        if len({id(cache) for cache in caches}) < len(caches):
            raise BadParameters("two feeds of one forward are of the same cache")
        outputs = [self._recompute(feed, cache) for feed, cache in zip(feeds, caches, strict=True)]
        for feed, cache in zip(feeds, caches, strict=True):
            cache.extend(feed.token_ids)
        return outputs

    def _recompute(self, feed: Feed, cache: RecomputingCache) -> Output:
        scratch = self._verifier.allocate(cache.spec)
        try:
            block = min(scratch.widest, self.row_counts[-1])
            for first in range(0, cache.length, block):
                self._verifier.forward(
                    scratch, cache.tokens[first : first + block], want_logits=False
                )
            own = Feed(scratch, feed.token_ids, feed.want_logits, feed.taps)
            (output,) = self._verifier.forward_batch([own])
        finally:
            scratch.release()
        return output


def _own(cache: KvCache) -> RecomputingCache:
    """`cache` as one of this verifier's."""
    if not isinstance(cache, RecomputingCache):
        raise TypeError(f"{type(cache).__name__} is a cache of another verifier")
    return cache

"""The contract of verifiers: what a back end offers to the rest of the engine.

The K/V and the logits of a position are a function of the history alone, bit
for bit: of its tokens, not of the blocks they came in, nor of the sessions that
share a forward. `Verifier.row_counts` is how a back end keeps that promise, and
`engine.verifiers.exactness` finds the counts for which it does on this machine, with the
threads that will serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import Features
from kakeya_fleet.engine.memory.slab_pool import SlabPool

if TYPE_CHECKING:
    from numpy.typing import NDArray

Logits: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True, slots=True)
class VerifierInfo:
    """What a loaded verifier is.

    `context_length` is the longest history in tokens; `kv_bytes_per_token` the
    K/V bytes of one resident position in the layers that see all of the
    history, `kv_fixed_bytes` those that a cache takes besides at most (sliding
    windows, recurrent states); `width` the most tokens of a verified block, so
    that it holds at most `width - 1` drafted ones; `layer_count` and
    `hidden_size` shape the hidden states that can be tapped;
    `history_layer_count` of the layers attend to all of the history; `device` is the kind of
    what computes it, `cpu`, `cuda`, `mps` or `metal`, empty where nobody tells.
    """

    model_id: str
    architecture: str
    weights_digest: str
    tokenizer_digest: str
    quantization: str
    dtype: str
    vocabulary_size: int
    context_length: int
    kv_bytes_per_token: int
    width: int
    kv_fixed_bytes: int = 0
    layer_count: int = 0
    hidden_size: int = 0
    backend: str = ""
    history_layer_count: int = 0
    device: str = ""


@dataclass(frozen=True, slots=True)
class Feed:
    """One session's part of a forward: tokens at positions `cache.length` onwards.

    `taps` are indices of layers, from 0, whose outputs are wanted; the number of the layers,
    `VerifierInfo.layer_count`, is that of the final norm behind them, which a feed may tap that
    wants no logits.
    """

    cache: KvCache
    token_ids: Sequence[int]
    want_logits: bool
    taps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """What a forward says of one feed of n tokens.

    `logits` [n, vocabulary_size] when wanted, else None; `features` [n, taps,
    hidden_size], what each tap gave, None without taps.
    """

    logits: Logits | None
    features: Features | None = None


class Verifier(Protocol):
    """A loaded autoregressive model. Calls come from one thread at a time."""

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        ...

    @property
    def pool(self) -> SlabPool[Any]:
        """Where its caches take their memory from."""
        ...

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Ascending: a forward has as many rows as the smallest that holds its tokens."""
        ...

    def use_row_counts(self, row_counts: Sequence[int]) -> None:
        """Restricts forwards to these, some of the counts it was loaded with."""
        ...

    @property
    def thread_count(self) -> int:
        """Threads that share a forward of the calling thread; 0 where the back end cannot
        tell, and where no number of them changes a bit.

        Other numbers may round otherwise: one that serves keeps to those that it was
        found exact with.
        """
        ...

    def shallow(self) -> Verifier:
        """The same shapes in as few layers as have every kind of them; perhaps itself.

        What its kernels round is what the whole model's round, in a fraction of
        the time. It shares the weights, and has a pool of its own.
        """
        ...

    def allocate(self, spec: CacheSpec, evicted: EvictedStore | None = None) -> KvCache:
        """A new, empty cache; one of kind `restored` takes over the store `evicted`.

        The store is empty, or of a history that is about to be computed again.
        When this raises it stays the caller's. With the restorer `identity` the
        verifier makes a store of its own when given none. Raises
        `KvStrategyUnsupported`, `BadParameters`, or `OutOfKvMemory` when the
        pool's budget does not hold what it takes at once.
        """
        ...

    def evicted_shape(self, spec: CacheSpec) -> EvictedShape:
        """What the store of a `restored` cache of `spec` is to keep.

        Raises `KvStrategyUnsupported` and `BadParameters` as `allocate` does.
        """
        ...

    def bytes_needed(self, spec: CacheSpec) -> int:
        """`memory_bytes` that `allocate(spec)` would have, without allocating."""
        ...

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """`forward_batch` of one feed without taps; its logits."""
        ...

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the tokens of all feeds, of different caches, in one forward.

        A feed has 1 to `cache.widest` tokens, all together at most
        `row_counts[-1]`. Their K/V are written provisionally. Raises, with
        nothing written for any feed, `BadParameters`, `TokenOutOfVocabulary`,
        `ContextExceeded` when the positions or a cache do not hold them, or
        `OutOfKvMemory` when the pool has no room for a cache to grow.
        """
        ...

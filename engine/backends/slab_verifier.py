"""What the verifiers of all back ends have in common: their caches, and what they accept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic

from transformers import PretrainedConfig

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.positions import WIDTH
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.errors import BadParameters, TokenOutOfVocabulary
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.kv.kernels import Array, Kernels
from kakeya_fleet.engine.kv.packed_segments import PackedKernels
from kakeya_fleet.engine.kv.slab_cache import SlabCache
from kakeya_fleet.engine.kv.states import AnyState
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.restoration.matching import check_encoder, evicted_shape, matching_encoder
from kakeya_fleet.engine.restoration.segment_store import SegmentStore

PADDING_TOKEN = 0
"""Any id serves: a padding row's keys are not written and its output is dropped."""


class SlabVerifier(ABC, Generic[Array, AnyState]):
    """A loaded model whose caches are slabs of its pool; see `engine.contracts.verifier.Verifier`.

    Holds no session's state: that is all in the caches.
    """

    def __init__(
        self,
        info: VerifierInfo,
        layout: KvLayout,
        kernels: Kernels[Array],
        row_counts: tuple[int, ...],
    ) -> None:
        self._info = info
        self._layout = layout
        self._kernels = kernels
        self._pool = kv_pool()
        self._evicted_pool = kv_pool()
        self._loaded_counts = row_counts
        self._row_counts = row_counts

    @property
    @abstractmethod
    def thread_count(self) -> int:
        """Threads that share a forward of the calling thread; 0 where nobody can tell."""

    @abstractmethod
    def shallow(self) -> SlabVerifier[Array, AnyState]:
        """The shortest prefix of the layers that has every kind of them."""

    @abstractmethod
    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the tokens of all feeds in one forward; see the contract for errors."""

    @abstractmethod
    def _new_states(self) -> dict[int, AnyState]:
        """An empty state for each recurrent layer, by the layer's index."""

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        return self._info

    @property
    def pool(self) -> SlabPool[Any]:
        """Where its caches take their memory from."""
        return self._pool

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Ascending: a forward has as many rows as the smallest that holds its tokens."""
        return self._row_counts

    def use_row_counts(self, row_counts: Sequence[int]) -> None:
        """Restricts forwards to these, some of those loaded with. Raises `BadParameters`."""
        chosen = tuple(sorted(set(row_counts)))
        if not set(chosen) <= set(self._loaded_counts) or chosen[-1:] < (self._info.width,):
            raise BadParameters(
                f"row counts {chosen} are not some of {self._loaded_counts}, the last at least"
                f" {self._info.width}"
            )
        self._row_counts = chosen

    def allocate(
        self, spec: CacheSpec, evicted: EvictedStore | None = None
    ) -> SlabCache[Array, AnyState]:
        """A new, empty cache; see `engine.contracts.verifier.Verifier.allocate` for errors."""
        self._layout.check(spec)
        restorer = spec.restorer if spec.kind is CacheKind.RESTORED else None
        if evicted is None and restorer is not None and restorer.kind is RestorerKind.IDENTITY:
            # They may take as much as all caches together.
            self._evicted_pool.budget_bytes = self._pool.budget_bytes
            evicted = self._segment_store(spec, restorer, self._evicted_pool)
        own: SegmentStore[Array] | None = None
        if spec.kind is CacheKind.PACKED:
            here = RestorerSpec(RestorerKind.IDENTITY, codec=spec.codec)
            own = self._segment_store(spec, here, self._pool)
        if evicted is not None and evicted.encoder is not None:
            check_encoder(evicted.encoder, self._info)
        try:
            return SlabCache.allocate(
                self._layout,
                spec,
                self._kernels,
                self._pool,
                new_states=self._new_states,
                evicted=evicted,
                encoder=matching_encoder(spec, evicted),
                own=own,
            )
        except BaseException:
            # It may have its memory already.
            if own is not None:
                own.release()
            raise

    def evicted_shape(self, spec: CacheSpec) -> EvictedShape:
        """What the store of a `restored` cache of `spec` is to keep."""
        return evicted_shape(self._layout, spec, self._info.dtype)

    def _segment_store(
        self, spec: CacheSpec, restorer: RestorerSpec, pool: SlabPool[Any]
    ) -> SegmentStore[Array]:
        """A store in this process, of the cache's own numbers or of what packs them."""
        shape = self.evicted_shape(spec)
        codec = shape.kv_codec
        kernels = self._kernels if codec is None else PackedKernels(self._kernels, codec)
        return SegmentStore(shape, restorer, kernels, pool)

    def bytes_needed(self, spec: CacheSpec) -> int:
        """`memory_bytes` that `allocate(spec)` would have, without allocating."""
        return self._layout.bytes_needed(spec)

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """`forward_batch` of one feed without taps; its logits."""
        return self.forward_batch([Feed(cache, token_ids, want_logits)])[0].logits

    def _rows(self, count: int) -> int:
        """Rows of a forward of `count` tokens."""
        return next(rows for rows in self._row_counts if rows >= count)

    def _checked(self, feeds: Sequence[Feed]) -> list[SlabCache[Array, AnyState]]:
        """The feeds' caches. Raises as `forward_batch` does, with nothing written."""
        caches = [self._own(feed.cache) for feed in feeds]
        total = sum(len(feed.token_ids) for feed in feeds)
        if not 1 <= total <= self._row_counts[-1]:
            raise BadParameters(f"a forward takes 1 to {self._row_counts[-1]} tokens, not {total}")
        if len({id(cache) for cache in caches}) < len(caches):
            raise BadParameters("two feeds of one forward are of the same cache")
        for feed, cache in zip(feeds, caches, strict=True):
            self._check_feed(feed, cache)
        for feed, cache in zip(feeds, caches, strict=True):
            cache.grow(len(feed.token_ids))
        return caches

    def _check_feed(self, feed: Feed, cache: SlabCache[Array, AnyState]) -> None:
        if not 1 <= len(feed.token_ids) <= cache.widest:
            raise BadParameters(
                f"a feed takes 1 to {cache.widest} tokens, not {len(feed.token_ids)}"
            )
        size = self._info.vocabulary_size
        for token_id in feed.token_ids:
            if not 0 <= token_id < size:
                raise TokenOutOfVocabulary(
                    f"token id {token_id} is outside 0..{size - 1}", token_id=str(token_id)
                )
        # What logits are made of is not told beside them.
        end = self._info.layer_count + (not feed.want_logits)
        if any(not 0 <= tap < end for tap in feed.taps):
            raise BadParameters(
                f"taps {feed.taps} are not among the {self._info.layer_count} layers, nor, without"
                " logits, the final norm behind them"
            )
        cache.check_room(len(feed.token_ids))

    def _own(self, cache: KvCache) -> SlabCache[Array, AnyState]:
        """`cache` as one of this verifier's. Raises `TypeError` for another's."""
        if not isinstance(cache, SlabCache) or cache.kernels is not self._kernels:
            raise TypeError(f"{type(cache).__name__} is not a cache of this verifier")
        return cache


def verifier_info(
    folder: ModelFolder,
    config: PretrainedConfig,
    layout: KvLayout,
    *,
    architecture: str,
    dtype: str,
    backend: str,
    quantization: str = "",
    device: str,
) -> VerifierInfo:
    """What a verifier of the model in `folder` is; `config` is that of its text part."""
    return VerifierInfo(
        model_id=folder.model_id,
        architecture=architecture,
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(folder.path),
        quantization=quantization,
        dtype=dtype,
        vocabulary_size=config.vocab_size,
        context_length=layout.context_length,
        kv_bytes_per_token=layout.bytes_per_token,
        kv_fixed_bytes=layout.fixed_bytes,
        width=WIDTH,
        layer_count=len(layout.layers),
        history_layer_count=layout.history_layer_count,
        hidden_size=config.hidden_size,
        backend=backend,
        device=device,
    )

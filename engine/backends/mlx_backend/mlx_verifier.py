"""A verifier on MLX: forwards over this engine's own caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import psutil

from kakeya_fleet.engine.backends.mlx_backend.architectures import Architecture, read_architecture
from kakeya_fleet.engine.backends.mlx_backend.checkpoint import load_model
from kakeya_fleet.engine.backends.mlx_backend.dtypes import mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.evicted_store import MlxEvictedStore
from kakeya_fleet.engine.backends.mlx_backend.forward_step import layer_feeds
from kakeya_fleet.engine.backends.mlx_backend.group_store import MlxPool, mlx_pool
from kakeya_fleet.engine.backends.mlx_backend.kv_cache import MlxKvCache
from kakeya_fleet.engine.backends.mlx_backend.layer_plan import kv_layout
from kakeya_fleet.engine.backends.mlx_backend.tapped import TappedLayers
from kakeya_fleet.engine.backends.mlx_backend.text_model import TextModel
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import Features
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.positions import WIDTH
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.errors import BadParameters, TokenOutOfVocabulary
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer
from kakeya_fleet.engine.restoration.matching import check_encoder, evicted_shape

ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""On the CPU all rows agree, one row among them, and a forward takes time for each row."""
PADDING_TOKEN = 0
"""Any id serves: a padding row's keys are not written and its output is dropped."""


class MlxVerifier:
    """A loaded model. Holds no session's state: that is all in the caches.

    The thread that loaded it need not be the one that calls it, but calls come
    from one: MLX's streams belong to threads, and nothing that a call leaves
    behind waits to be computed.
    """

    def __init__(self, model: TextModel, info: VerifierInfo, layout: KvLayout) -> None:
        self._model = model
        self._info = info
        self._layout = layout
        self._dtype = mlx_dtype(info.dtype)
        self._pool = mlx_pool()
        self._evicted_pool = mlx_pool()
        self._row_counts: tuple[int, ...] = ROW_COUNTS

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        return self._info

    @property
    def pool(self) -> MlxPool:
        """Where its caches take their memory from."""
        return self._pool

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Ascending: a forward has as many rows as the smallest that holds its tokens."""
        return self._row_counts

    def use_row_counts(self, row_counts: Sequence[int]) -> None:
        """Restricts forwards to these, some of `ROW_COUNTS`. Raises `BadParameters`."""
        chosen = tuple(sorted(set(row_counts)))
        if not set(chosen) <= set(ROW_COUNTS) or chosen[-1:] < (self._info.width,):
            raise BadParameters(
                f"row counts {chosen} are not some of {ROW_COUNTS}, the last at least"
                f" {self._info.width}"
            )
        self._row_counts = chosen

    @property
    def thread_count(self) -> int:
        """0: MLX does not say what shares a forward, and lets nobody choose."""
        return 0

    def shallow(self) -> MlxVerifier:
        """The shortest prefix of the layers that has every kind of them."""
        depth = self._layout.shallow_depth
        info = replace(self._info, layer_count=depth)
        return MlxVerifier(self._model.prefix(depth), info, self._layout.prefix(depth))

    def allocate(self, spec: CacheSpec, evicted: EvictedStore | None = None) -> MlxKvCache:
        """A new, empty cache; see `engine.contracts.verifier.Verifier.allocate` for errors."""
        self._layout.check(spec)
        restorer = spec.restorer if spec.kind is CacheKind.RESTORED else None
        if evicted is None and restorer is not None and restorer.kind is RestorerKind.IDENTITY:
            # They may take as much as all caches together.
            self._evicted_pool.budget_bytes = self._pool.budget_bytes
            evicted = MlxEvictedStore(self.evicted_shape(spec), restorer, self._evicted_pool)
        if evicted is not None and evicted.encoder is not None:
            check_encoder(evicted.encoder, self._info)
        return MlxKvCache.allocate(
            self._layout, spec, self._dtype, self._pool, self._model.rules, evicted
        )

    @property
    def evicted_pool(self) -> MlxPool:
        """Where the stores take their memory from that it makes itself."""
        return self._evicted_pool

    def evicted_shape(self, spec: CacheSpec) -> EvictedShape:
        """What the store of a `restored` cache of `spec` is to keep."""
        return evicted_shape(self._layout, spec, self._info.dtype)

    def bytes_needed(self, spec: CacheSpec) -> int:
        """`memory_bytes` that `allocate(spec)` would have, without allocating."""
        return self._layout.bytes_needed(spec)

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """`forward_batch` of one feed without taps; its logits."""
        return self.forward_batch([Feed(cache, token_ids, want_logits)])[0].logits

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the feeds one after the other: a row's time is the same alone or not.

        What a store of evicted positions raises leaves no feed's tokens behind.
        """
        caches = self._checked(feeds)
        before = [cache.length for cache in caches]
        for feed, cache in zip(feeds, caches, strict=True):
            # Before anything is written: what leaves a window may be written over.
            cache.evict(len(feed.token_ids))
        try:
            return [self._run(feed, cache) for feed, cache in zip(feeds, caches, strict=True)]
        except BaseException:
            for cache, length in zip(caches, before, strict=True):
                if cache.evicted is not None:
                    cache.evicted.abandon()
                if cache.length > length:
                    cache.truncate(length)
                # No write may wait to be computed by whichever thread comes next.
                mx.eval(cache.arrays)
            raise

    def _run(self, feed: Feed, cache: MlxKvCache) -> Output:
        count = len(feed.token_ids)
        rows = next(rows for rows in self._row_counts if rows >= count)
        ids = [*feed.token_ids, *[PADDING_TOKEN] * (rows - count)]
        steps = layer_feeds(self._layout, cache, count, rows)
        encoded = cache.encoder.spec.taps if cache.encoder is not None else ()
        with TappedLayers(self._model.layers, {*feed.taps, *encoded}) as tapped:
            output = self._model.run(ids, steps, want_logits=feed.want_logits)
        logits = output[0, :count].astype(mx.float32)
        hidden = {tap: rows[0, :count].astype(mx.float32) for tap, rows in tapped.outputs.items()}
        mx.eval(*([logits] if feed.want_logits else []), hidden, cache.arrays)
        if encoded:
            cache.keep_vectors(_stacked(hidden, encoded))
        cache.advance(count)
        features = _stacked(hidden, feed.taps) if feed.taps else None
        return Output(np.array(logits) if feed.want_logits else None, features)

    def _checked(self, feeds: Sequence[Feed]) -> list[MlxKvCache]:
        """The feeds' caches. Raises as `forward_batch` does, with nothing written."""
        caches = [_own(feed.cache) for feed in feeds]
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

    def _check_feed(self, feed: Feed, cache: MlxKvCache) -> None:
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
        if any(not 0 <= tap < self._info.layer_count for tap in feed.taps):
            raise BadParameters(
                f"taps {feed.taps} are not among the {self._info.layer_count} layers"
            )
        cache.check_room(len(feed.token_ids))


def load_verifier(
    folder: ModelFolder, *, dtype: str = "float32", available_bytes: int | None = None
) -> MlxVerifier:
    """The model in `folder` on MLX's default device; see `engine.backends.load_verifier`."""
    number = mlx_dtype(dtype)
    architecture = read_architecture(folder.path)
    check_tokenizer(folder.path, architecture.config.vocab_size)
    prepare_process()
    if available_bytes is None:
        available_bytes = psutil.virtual_memory().available
    model = load_model(folder.path, architecture, dtype=number, available_bytes=available_bytes)
    return verifier_of(folder, architecture, model, dtype=dtype)


def prepare_process() -> None:
    """Settings of MLX that hold for all models of this process."""
    if mx.default_device() == mx.cpu:
        # MLX would fuse with the C++ compiler of the machine, if it has one, into a folder
        # that all processes share: no faster here (measured), and bits that depend on it.
        mx.disable_compile()


def verifier_of(
    folder: ModelFolder, architecture: Architecture, model: nn.Module, *, dtype: str, ranks: int = 1
) -> MlxVerifier:
    """A verifier of a loaded `model` of `folder`, or of one of `ranks` even parts of it."""
    number = mlx_dtype(dtype)
    layout = kv_layout(architecture, number, ranks=ranks)
    quantization = architecture.quantization
    info = VerifierInfo(
        model_id=folder.model_id,
        architecture=architecture.name,
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(folder.path),
        quantization=quantization.label if quantization else "",
        dtype=dtype,
        vocabulary_size=architecture.config.vocab_size,
        context_length=layout.context_length,
        kv_bytes_per_token=layout.bytes_per_token,
        kv_fixed_bytes=layout.fixed_bytes,
        width=WIDTH,
        layer_count=len(layout.layers),
        history_layer_count=layout.history_layer_count,
        hidden_size=architecture.config.hidden_size,
        backend="mlx",
    )
    return MlxVerifier(TextModel(architecture, model, number, ranks=ranks), info, layout)


def _stacked(hidden: Mapping[int, mx.array], taps: Sequence[int]) -> Features:
    """The hidden states [n, taps, hidden_size] at these layers."""
    return np.stack([np.array(hidden[tap]) for tap in taps], axis=1)


def _own(cache: KvCache) -> MlxKvCache:
    """`cache` as one of this back end's."""
    if not isinstance(cache, MlxKvCache):
        raise TypeError(f"{type(cache).__name__} is a cache of another back end")
    return cache

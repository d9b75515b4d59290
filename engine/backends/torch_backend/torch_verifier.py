"""A verifier on torch: forwards over this engine's own caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import psutil
import torch
from torch import Tensor
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.architectures import Architecture, read_architecture
from kakeya_fleet.engine.backends.torch_backend.checkpoint import load_model
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.forward_step import ForwardStep
from kakeya_fleet.engine.backends.torch_backend.group_store import TorchPool, torch_pool
from kakeya_fleet.engine.backends.torch_backend.kv_cache import TorchKvCache
from kakeya_fleet.engine.backends.torch_backend.layer_plan import kv_layout, new_states
from kakeya_fleet.engine.backends.torch_backend.packed_linear import can_pack
from kakeya_fleet.engine.backends.torch_backend.tapped import TappedLayers
from kakeya_fleet.engine.backends.torch_backend.text_model import TextModel
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.positions import WIDTH
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.errors import BadParameters, TokenOutOfVocabulary
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer
from kakeya_fleet.engine.restoration.matching import check_encoder, evicted_shape

ROW_COUNTS = (4, 8, 16, 32, 64)
"""Fewer rows are slower: 2 rows read a layer's weights at 20 to 27 GB/s where 4 do at 27 to 48."""
PLAIN_ROW_COUNTS = (WIDTH,)
"""Without packed products each number of rows may take a kernel of its own."""
PADDING_TOKEN = 0
"""Any id serves: a padding row's keys are not written and its output is dropped."""


class TorchVerifier:
    """A loaded model. Holds no session's state: that is all in the caches."""

    def __init__(self, model: TextModel, info: VerifierInfo, layout: KvLayout) -> None:
        self._model = model
        self._info = info
        self._layout = layout
        self._dtype = torch_dtype(info.dtype)
        self._pool = torch_pool()
        self._evicted_pool = torch_pool()
        self._loaded_counts = ROW_COUNTS if can_pack(self._dtype) else PLAIN_ROW_COUNTS
        self._row_counts: tuple[int, ...] = self._loaded_counts

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        return self._info

    @property
    def pool(self) -> TorchPool:
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

    @property
    def thread_count(self) -> int:
        """Threads that share a forward of the calling thread."""
        return torch.get_num_threads()

    def shallow(self) -> TorchVerifier:
        """The shortest prefix of the layers that has every kind of them."""
        depth = self._layout.shallow_depth
        info = replace(self._info, layer_count=depth)
        return TorchVerifier(self._model.prefix(depth), info, self._layout.prefix(depth))

    @property
    def evicted_pool(self) -> TorchPool:
        """Where the stores take their memory from that it makes itself."""
        return self._evicted_pool

    def allocate(self, spec: CacheSpec, evicted: EvictedStore | None = None) -> TorchKvCache:
        """A new, empty cache; see `engine.contracts.verifier.Verifier.allocate` for errors."""
        self._layout.check(spec)
        restorer = spec.restorer if spec.kind is CacheKind.RESTORED else None
        if evicted is None and restorer is not None and restorer.kind is RestorerKind.IDENTITY:
            # They may take as much as all caches together.
            self._evicted_pool.budget_bytes = self._pool.budget_bytes
            evicted = TorchEvictedStore(self.evicted_shape(spec), restorer, self._evicted_pool)
        if evicted is not None and evicted.encoder is not None:
            check_encoder(evicted.encoder, self._info)
        return TorchKvCache.allocate(
            self._layout,
            spec,
            self._dtype,
            self._pool,
            partial(new_states, self._model, self._layout),
            evicted,
        )

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

    @torch.inference_mode()
    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the tokens of all feeds in one forward; see the contract for errors."""
        caches = self._checked(feeds)
        counts = [len(feed.token_ids) for feed in feeds]
        rows = next(rows for rows in self._row_counts if rows >= sum(counts))
        ids: list[int] = []
        positions: list[int] = []
        for feed, cache, count in zip(feeds, caches, counts, strict=True):
            ids += feed.token_ids
            positions += range(cache.length, cache.length + count)
        ids += [PADDING_TOKEN] * (rows - len(ids))
        positions += positions[-1:] * (rows - len(positions))
        step = ForwardStep(caches, counts, self._row_counts)
        with (
            TappedLayers(self._model.layers, _tapped_layers(feeds, caches)) as tapped,
            step.abandoned_on_error(),
        ):
            hidden = self._model.hidden(torch.tensor([ids]), torch.tensor([positions]), step)
        _keep_vectors(tapped, caches, counts)
        for cache, count in zip(caches, counts, strict=True):
            cache.advance(count)
        logits = self._logits(hidden, feeds)
        outputs: list[Output] = []
        first = 0
        for feed, own, count in zip(feeds, logits, counts, strict=True):
            outputs.append(Output(own, tapped.features(feed.taps, slice(first, first + count))))
            first += count
        return outputs

    def _logits(self, hidden: Tensor, feeds: Sequence[Feed]) -> list[Logits | None]:
        """The logits of each feed that wants them, from hidden [1, rows, hidden_size]."""
        counts = [len(feed.token_ids) for feed in feeds]
        wanted: list[int] = []
        first = 0
        for feed, count in zip(feeds, counts, strict=True):
            if feed.want_logits:
                wanted += range(first, first + count)
            first += count
        if not wanted:
            return [None] * len(feeds)
        if len(wanted) < first:
            rows = next(rows for rows in self._row_counts if rows >= len(wanted))
            chosen = wanted + wanted[-1:] * (rows - len(wanted))
            hidden = hidden[:, torch.tensor(chosen)]
        values = self._model.logits(hidden)[0, : len(wanted)].to(torch.float32).numpy()
        found: list[Logits | None] = []
        first = 0
        for feed, count in zip(feeds, counts, strict=True):
            found.append(values[first : first + count] if feed.want_logits else None)
            first += count if feed.want_logits else 0
        return found

    def _checked(self, feeds: Sequence[Feed]) -> list[TorchKvCache]:
        """The feeds' caches. Raises as `forward_batch` does, with nothing written."""
        caches = [_own(feed.cache) for feed in feeds]
        total = sum(len(feed.token_ids) for feed in feeds)
        if not 1 <= total <= self._row_counts[-1]:
            raise BadParameters(f"a forward takes 1 to {self._row_counts[-1]} tokens, not {total}")
        if len({id(cache) for cache in caches}) < len(caches):
            raise BadParameters("two feeds of one forward are of the same cache")
        size = self._info.vocabulary_size
        for feed, cache in zip(feeds, caches, strict=True):
            if not 1 <= len(feed.token_ids) <= cache.widest:
                raise BadParameters(
                    f"a feed takes 1 to {cache.widest} tokens, not {len(feed.token_ids)}"
                )
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
        for feed, cache in zip(feeds, caches, strict=True):
            cache.grow(len(feed.token_ids))
        return caches


def load_verifier(
    folder: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
) -> TorchVerifier:
    """The model in `folder` on the CPU; see `engine.backends.load_verifier`."""
    number = torch_dtype(dtype)
    architecture = read_architecture(folder.path)
    check_tokenizer(folder.path, architecture.config.vocab_size)
    if available_bytes is None:
        available_bytes = psutil.virtual_memory().available
    model = load_model(
        folder.path,
        architecture,
        dtype=number,
        rows=WIDTH,
        available_bytes=available_bytes,
    )
    return verifier_of(folder, architecture, model, kv_layout(architecture, number), dtype)


def verifier_of(
    folder: ModelFolder,
    architecture: Architecture,
    model: PreTrainedModel,
    layout: KvLayout,
    dtype: str,
) -> TorchVerifier:
    """A verifier of a loaded `model` of `folder` whose caches are those of `layout`."""
    info = VerifierInfo(
        model_id=folder.model_id,
        architecture=architecture.name,
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(folder.path),
        quantization="",
        dtype=dtype,
        vocabulary_size=architecture.config.vocab_size,
        context_length=layout.context_length,
        kv_bytes_per_token=layout.bytes_per_token,
        kv_fixed_bytes=layout.fixed_bytes,
        width=WIDTH,
        layer_count=len(layout.layers),
        history_layer_count=layout.history_layer_count,
        hidden_size=architecture.config.hidden_size,
        backend="torch",
    )
    return TorchVerifier(TextModel(architecture, model), info, layout)


def _own(cache: KvCache) -> TorchKvCache:
    """`cache` as one of this back end's."""
    if not isinstance(cache, TorchKvCache):
        raise TypeError(f"{type(cache).__name__} is a cache of another back end")
    return cache


def _tapped_layers(feeds: Sequence[Feed], caches: Sequence[TorchKvCache]) -> set[int]:
    """The layers whose outputs feeds want, or context vectors of caches are made of."""
    asked = {tap for feed in feeds for tap in feed.taps}
    encoders = (cache.encoder for cache in caches)
    return asked.union(*(encoder.spec.taps for encoder in encoders if encoder is not None))


def _keep_vectors(
    tapped: TappedLayers, caches: Sequence[TorchKvCache], counts: Sequence[int]
) -> None:
    """Keeps the context vectors of a forward's rows in the caches that have an encoder."""
    first = 0
    for cache, count in zip(caches, counts, strict=True):
        encoder = cache.encoder
        if encoder is not None:
            features = tapped.features(encoder.spec.taps, slice(first, first + count))
            if features is not None:
                cache.keep_vectors(features)
        first += count

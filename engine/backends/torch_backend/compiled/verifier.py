"""A verifier of a plain family whose forwards are one call of compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.slab_verifier import SlabVerifier
from kakeya_fleet.engine.backends.torch_backend.compiled.batch import (
    BatchOf,
    LayerPlaces,
    reads_packed,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import Buffers, CompiledDecoder
from kakeya_fleet.engine.backends.torch_backend.compiled.packing import PackingKernels
from kakeya_fleet.engine.backends.torch_backend.compiled.preview import Preview
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    ATTEND,
    FINISH,
    PROJECT,
    WHOLE,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.tapped import Tapped
from kakeya_fleet.engine.backends.torch_backend.forward_step import TensorCache
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.segment_products import merged
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.kv.feed import EvictedRead

ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""A forward has as many rows as tokens; these are the numbers that are checked at load."""
WIDTH = 32
"""Queries of one verify forward where the cache has room: one more costs a fraction of what reading
the weights does, so that drafts that are mostly right may be long."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """How a verifier computes whose choices are drafts alone.

    Finely, so that more of them are right: what few rows take is the reading of weights, and it
    costs them little. Only as many rows as go at once, which are a history's, do without. With a
    `preview` logits of unlikely ids are -inf.
    """

    preview: Preview | None


class CompiledVerifier(SlabVerifier[Tensor, RecurrentState]):
    """A loaded model on the CPU."""

    def __init__(
        self,
        decoder: CompiledDecoder,
        info: VerifierInfo,
        layout: KvLayout,
        drafting: Drafting | None = None,
    ) -> None:
        """Of the first layers of `decoder`, as many as `layout` has; `drafting` if it drafts."""
        info = replace(info, width=WIDTH)
        super().__init__(info, layout, PackingKernels(info.dtype), ROW_COUNTS)
        self._decoder = decoder
        self._drafting = drafting
        self._places = LayerPlaces(layout)
        self._buffers = Buffers(decoder.sizes, ROW_COUNTS[-1])

    @property
    def thread_count(self) -> int:
        """0: their number is of no influence on a bit."""
        return 0

    @property
    def preview_bytes(self) -> int:
        """What drafting takes besides the weights."""
        return self._decoder.preview_bytes

    def for_drafts(self) -> CompiledVerifier:
        """One of the same weights that drafts better, in less time; see `Drafting`."""
        decoder, preview = self._decoder, None
        if self.preview_bytes:
            preview = decoder.preview(self._sizes_before_head())
        return CompiledVerifier(decoder, self._info, self._layout, Drafting(preview))

    def shallow(self) -> CompiledVerifier:
        """The shortest prefix of the layers that has every kind of them."""
        depth = self._layout.shallow_depth
        info = replace(self._info, layer_count=depth)
        return CompiledVerifier(self._decoder, info, self._layout.prefix(depth))

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the tokens of all feeds in one forward; see the contract for errors."""
        caches = self._checked(feeds)
        counts = [len(feed.token_ids) for feed in feeds]
        firsts = [sum(counts[:index]) for index in range(len(counts))]
        for cache, count in zip(caches, counts, strict=True):
            # Before anything is written: what leaves a window may be written over.
            cache.evict(count)
        for cache, count in zip(caches, counts, strict=True):
            cache.prepare(count)
        ids = [token for feed in feeds for token in feed.token_ids]
        self._decoder.embed(ids, self._buffers.hidden)
        tapped = Tapped(_taps(feeds, caches), len(ids), self._buffers.hidden.shape[1])
        batch = BatchOf(self._places, caches, counts, self._decoder.angles, self._buffers, tapped)
        self._run(batch, caches, counts, firsts)
        depth = len(self._layout.layers)
        if depth in tapped.taps:
            normed = self._decoder.normed(self._buffers.hidden[: len(ids)])
            tapped.outputs[:, tapped.place(depth)] = normed
        for cache, first, count in zip(caches, firsts, counts, strict=True):
            if cache.encoder is not None:
                cache.keep_vectors(tapped.features(cache.encoder.spec.taps, first, count))
            cache.advance(count)
        wanted = [
            row
            for feed, first, count in zip(feeds, firsts, counts, strict=True)
            if feed.want_logits
            for row in range(first, first + count)
        ]
        logits = self._logits(batch, wanted) if wanted else None
        outputs: list[Output] = []
        done = 0
        for feed, first, count in zip(feeds, firsts, counts, strict=True):
            own = None
            if feed.want_logits and logits is not None:
                own = logits[done : done + count]
                done += count
            features = tapped.features(feed.taps, first, count) if feed.taps else None
            outputs.append(Output(own, features))
        return outputs

    def _run(
        self,
        batch: BatchOf,
        caches: Sequence[TensorCache],
        counts: Sequence[int],
        firsts: Sequence[int],
    ) -> None:
        """All layers."""
        depth = len(self._layout.layers)
        elsewhere = self._evicted(caches, counts, firsts)
        if not elsewhere:
            finely = self._drafting is not None and sum(counts) < ROW_COUNTS[-1]
            self._decoder.run(batch.struct, 0, depth, WHOLE, finely=finely)
        else:
            for layer in range(depth):
                self._layer_with_evicted(batch, layer, elsewhere)

    def _logits(self, batch: BatchOf, rows: Sequence[int]) -> Logits:
        drafting = self._drafting
        preview = None if drafting is None else drafting.preview
        return self._decoder.logits(batch.struct, rows, preview, finely=drafting is not None)

    def _evicted(
        self, caches: Sequence[TensorCache], counts: Sequence[int], firsts: Sequence[int]
    ) -> list[tuple[TensorCache, slice, dict[int, int]]]:
        """Caches with queries that see evicted keys: their rows, and the first position a layer."""
        found = []
        for cache, count, first in zip(caches, counts, firsts, strict=True):
            if cache.spec.kind is CacheKind.PACKED and reads_packed(cache):
                # The library does within the forward.
                continue
            layers = {
                layer: position
                for group in self._layout.groups
                if (position := cache.evicted_from(group, count)) is not None
                for layer in group.layers
            }
            if layers:
                found.append((cache, slice(first, first + count), layers))
        return found

    def _layer_with_evicted(
        self,
        batch: BatchOf,
        layer: int,
        elsewhere: Sequence[tuple[TensorCache, slice, dict[int, int]]],
    ) -> None:
        """One layer, with what stores elsewhere find of its evicted keys meanwhile."""
        decoder, buffers, heads = self._decoder, self._buffers, self._decoder.sizes.heads
        reads: list[tuple[EvictedRead, slice]] = []
        for cache, rows, layers in elsewhere:
            if cache.evicted is not None and layer in layers:
                reads.append((EvictedRead(cache.evicted, layer, layers[layer]), rows))
        decoder.run(batch.struct, layer, layer + 1, PROJECT)
        with ExitStack() as failing:
            for read, _ in reads:
                failing.callback(read.store.abandon)
            for read, rows in reads:
                queries = buffers.joint[rows, :heads].transpose(0, 1).contiguous().numpy()
                read.store.begin(EvictedQueries(layer, read.first, decoder.scaling, queries))
            decoder.run(batch.struct, layer, layer + 1, ATTEND)
            for read, rows in reads:
                own = [each[rows] for each in (buffers.totals, buffers.mixed, buffers.maxima)]
                partial = read.store.finish()
                found = (partial.total, partial.output, partial.maximum)
                more = [torch.from_numpy(each).transpose(0, 1) for each in found]
                joined = merged((own[0], own[1], own[2]), (more[0], more[1], more[2]))
                for to, result in zip(own, joined, strict=True):
                    to.copy_(result)
            failing.pop_all()
        decoder.run(batch.struct, layer, layer + 1, FINISH)

    def _sizes_before_head(self) -> Tensor:
        """How large the head's inputs are, [hidden], behind ids at random."""
        count, depth = ROW_COUNTS[-1], len(self._layout.layers)
        ids = np.random.default_rng(0).integers(self._info.vocabulary_size, size=count).tolist()
        cache = self.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=count))
        (found,) = self.forward_batch([Feed(cache, ids, want_logits=False, taps=(depth,))])
        cache.release()
        if found.features is None:
            raise AssertionError("a forward gave no outputs of a layer, which were asked for")
        return torch.from_numpy(found.features[:, 0]).square().mean(dim=0)

    def _new_states(self) -> dict[int, RecurrentState]:
        return {}


def _taps(feeds: Sequence[Feed], caches: Sequence[TensorCache]) -> frozenset[int]:
    """What feeds want the outputs of, or context vectors of caches are made of."""
    asked = {tap for feed in feeds for tap in feed.taps}
    encoders = (cache.encoder for cache in caches)
    return frozenset(
        asked.union(*(encoder.spec.taps for encoder in encoders if encoder is not None))
    )

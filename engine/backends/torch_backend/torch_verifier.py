"""A verifier on torch: forwards over this engine's own caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.slab_verifier import PADDING_TOKEN, SlabVerifier, verifier_info
from kakeya_fleet.engine.backends.torch_backend.architectures import (
    TorchArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.torch_backend.checkpoint import laid_out, open_checkpoint
from kakeya_fleet.engine.backends.torch_backend.compiled.decoder import (
    CompiledDecoder,
    compilable,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.compiled.packing import PackingKernels
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import SCALES_IN
from kakeya_fleet.engine.backends.torch_backend.device import (
    HOST,
    Device,
    device_called,
    loading_on,
    require_computed,
)
from kakeya_fleet.engine.backends.torch_backend.dtypes import on_host, torch_dtype
from kakeya_fleet.engine.backends.torch_backend.forward_step import ForwardStep, TensorCache
from kakeya_fleet.engine.backends.torch_backend.layer_plan import kv_layout, new_states
from kakeya_fleet.engine.backends.torch_backend.linear_choice import chosen_linears
from kakeya_fleet.engine.backends.torch_backend.packed_linear import can_pack
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.tapped import TappedLayers
from kakeya_fleet.engine.backends.torch_backend.text_model import TextModel
from kakeya_fleet.engine.backends.torch_backend.weight_sizes import loading_of, stored_in
from kakeya_fleet.engine.contracts import device as devices
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.positions import WIDTH
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer
from kakeya_fleet.engine.models.weight_choice import AUTO, BITS, quantization_of, require_auto
from kakeya_fleet.engine.models.weight_memory import check_weights_fit

ROW_COUNTS = (4, 8, 16, 32, 64)
"""Fewer rows are slower: 2 rows read a layer's weights at 20 to 27 GB/s where 4 do at 27 to 48."""
PLAIN_ROW_COUNTS = (WIDTH,)
"""On a processor without packed products each number of rows may take a kernel of its own."""


class TorchVerifier(SlabVerifier[Tensor, RecurrentState]):
    """A loaded model on one device, which has its weights, caches and masks."""

    def __init__(
        self, model: TextModel, info: VerifierInfo, layout: KvLayout, device: Device = HOST
    ) -> None:
        # What agrees on another device, only its own check finds: all are tried.
        several = not device.is_host or can_pack(torch_dtype(info.dtype))
        super().__init__(
            info,
            layout,
            PackingKernels(info.dtype, device),
            ROW_COUNTS if several else PLAIN_ROW_COUNTS,
        )
        self._model = model
        self.device = device
        """Where it computes."""

    @property
    def thread_count(self) -> int:
        """Threads that share a forward of the calling thread; 0 on a device that has none."""
        return torch.get_num_threads() if self.device.is_host else 0

    def shallow(self) -> TorchVerifier:
        """The shortest prefix of the layers that has every kind of them."""
        depth = self._layout.shallow_depth
        info = replace(self._info, layer_count=depth)
        layout = self._layout.prefix(depth)
        return TorchVerifier(self._model.prefix(depth), info, layout, self.device)

    @torch.inference_mode()
    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the tokens of all feeds in one forward; see the contract for errors."""
        caches = self._checked(feeds)
        counts = [len(feed.token_ids) for feed in feeds]
        rows = self._rows(sum(counts))
        ids: list[int] = []
        positions: list[int] = []
        for feed, cache, count in zip(feeds, caches, counts, strict=True):
            ids += feed.token_ids
            positions += range(cache.length, cache.length + count)
        ids += [PADDING_TOKEN] * (rows - len(ids))
        positions += positions[-1:] * (rows - len(positions))
        step = ForwardStep(caches, counts, self._row_counts)
        depth = self._info.layer_count
        with (
            TappedLayers(self._model.layers, _tapped_layers(feeds, caches, depth)) as tapped,
            step.abandoned_on_error(),
        ):
            place = self.device.place
            hidden = self._model.hidden(
                torch.tensor([ids], device=place), torch.tensor([positions], device=place), step
            )
        tapped.keep(depth, hidden)
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
            rows = self._rows(len(wanted))
            chosen = wanted + wanted[-1:] * (rows - len(wanted))
            hidden = hidden[:, torch.tensor(chosen, device=self.device.place)]
        values = on_host(self._model.logits(hidden)[0, : len(wanted)].to(torch.float32))
        found: list[Logits | None] = []
        first = 0
        for feed, count in zip(feeds, counts, strict=True):
            found.append(values[first : first + count] if feed.want_logits else None)
            first += count if feed.want_logits else 0
        return found

    def _new_states(self) -> dict[int, RecurrentState]:
        return new_states(self._model, self._layout)


def load_verifier(
    folder: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
    weights: str = AUTO,
    device: str = devices.AUTO,
) -> SlabVerifier[Tensor, RecurrentState]:
    """The model in `folder` on `device`; see `engine.backends.load_verifier`."""
    number = torch_dtype(dtype)
    computing = device_called(device)
    require_computed(computing, number, dtype)
    with loading_on(computing):
        return _loaded(folder, computing, number, dtype, available_bytes, weights)


def _loaded(
    folder: ModelFolder,
    device: Device,
    number: torch.dtype,
    dtype: str,
    available_bytes: int | None,
    weights: str,
) -> SlabVerifier[Tensor, RecurrentState]:
    architecture = read_architecture(folder.path)
    check_tokenizer(folder.path, architecture.config.vocab_size)
    if available_bytes is None:
        available_bytes = device.available_bytes
    if weights in BITS and not device.is_host:
        require_auto(weights, "the processor, whose products of whole numbers they are")
    compiled = library() if device.is_host else None
    checkpoint = open_checkpoint(folder.path, architecture, dtype=number, device=device)
    layout = kv_layout(architecture, number)
    loading = loading_of(
        checkpoint.model,
        weights,
        number,
        stored_in(checkpoint),
        is_tied=checkpoint.is_tied,
        has_library=compiled is not None,
    )
    check_weights_fit(folder.path, loading.needed_bytes, available_bytes)
    if compiled is not None and compilable(checkpoint.model):
        decoder = CompiledDecoder(compiled, checkpoint, dtype=number, weights=weights)
        info = info_of(folder, architecture, layout, dtype, weights, device)
        return CompiledVerifier(decoder, info, layout)
    choice = chosen_linears(weights, number, WIDTH, compiled, device)
    model = laid_out(checkpoint, WIDTH, choice=choice)
    return verifier_of(folder, architecture, model, layout, dtype, weights, device)


def verifier_of(
    folder: ModelFolder,
    architecture: TorchArchitecture,
    model: PreTrainedModel,
    layout: KvLayout,
    dtype: str,
    weights: str = AUTO,
    device: Device = HOST,
) -> TorchVerifier:
    """A verifier of a loaded `model` of `folder`, on `device`, with caches of `layout`."""
    info = info_of(folder, architecture, layout, dtype, weights, device)
    return TorchVerifier(TextModel(architecture, model), info, layout, device)


def info_of(
    folder: ModelFolder,
    architecture: TorchArchitecture,
    layout: KvLayout,
    dtype: str,
    weights: str,
    device: Device,
) -> VerifierInfo:
    """What a verifier of the model in `folder` is, its weights as `weights` says, on `device`."""
    own = "" if architecture.quantization is None else architecture.quantization.label
    return verifier_info(
        folder,
        architecture.config,
        layout,
        architecture=architecture.name,
        dtype=dtype,
        backend="torch",
        device=device.kind,
        quantization=quantization_of(weights, own, SCALES_IN),
    )


def _tapped_layers(feeds: Sequence[Feed], caches: Sequence[TensorCache], depth: int) -> set[int]:
    """Those of `depth` layers that feeds want, or that context vectors of caches are made of."""
    asked = {tap for feed in feeds for tap in feed.taps if tap < depth}
    encoders = (cache.encoder for cache in caches)
    return asked.union(*(encoder.spec.taps for encoder in encoders if encoder is not None))


def _keep_vectors(
    tapped: TappedLayers, caches: Sequence[TensorCache], counts: Sequence[int]
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

"""A verifier on MLX: forwards over this engine's own caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from kakeya_fleet.engine.backends.mlx_backend.architectures import (
    MlxArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.mlx_backend.checkpoint import load_model
from kakeya_fleet.engine.backends.mlx_backend.device_facts import device_kind
from kakeya_fleet.engine.backends.mlx_backend.dtypes import mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.forward_step import ArrayCache, layer_feeds
from kakeya_fleet.engine.backends.mlx_backend.kernels import MlxKernels
from kakeya_fleet.engine.backends.mlx_backend.layer_plan import kv_layout
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.mlx_backend.tapped import TappedLayers
from kakeya_fleet.engine.backends.mlx_backend.text_model import TextModel
from kakeya_fleet.engine.backends.mlx_backend.weight_choice import choose_weights
from kakeya_fleet.engine.backends.slab_verifier import PADDING_TOKEN, SlabVerifier, verifier_info
from kakeya_fleet.engine.contracts.device import AUTO as DEFAULT_DEVICE
from kakeya_fleet.engine.contracts.features import Features
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.verifier import Feed, Output, VerifierInfo
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer
from kakeya_fleet.engine.models.weight_choice import AUTO, quantization_of, require_auto

ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""On the CPU all rows agree, one row among them, and a forward takes time for each row."""


class MlxVerifier(SlabVerifier[mx.array, RecurrentState]):
    """A loaded model on MLX's default device.

    The thread that loaded it need not be the one that calls it, but calls come
    from one: MLX's streams belong to threads, and nothing that a call leaves
    behind waits to be computed.
    """

    def __init__(self, model: TextModel, info: VerifierInfo, layout: KvLayout) -> None:
        super().__init__(info, layout, MlxKernels(info.dtype), ROW_COUNTS)
        self._model = model

    @property
    def thread_count(self) -> int:
        """0: MLX does not say what shares a forward, and lets nobody choose."""
        return 0

    def shallow(self) -> MlxVerifier:
        """The shortest prefix of the layers that has every kind of them."""
        depth = self._layout.shallow_depth
        info = replace(self._info, layer_count=depth)
        return MlxVerifier(self._model.prefix(depth), info, self._layout.prefix(depth))

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

    def _run(self, feed: Feed, cache: ArrayCache) -> Output:
        count = len(feed.token_ids)
        rows = self._rows(count)
        ids = [*feed.token_ids, *[PADDING_TOKEN] * (rows - count)]
        steps = layer_feeds(self._layout, cache, count, rows)
        encoded = cache.encoder.spec.taps if cache.encoder is not None else ()
        depth = self._info.layer_count
        layers = {tap for tap in (*feed.taps, *encoded) if tap < depth}
        with TappedLayers(self._model.layers, layers) as tapped:
            output = self._model.run(ids, steps, want_logits=feed.want_logits)
        if depth in feed.taps:
            # Without logits the model gives what its final norm does.
            tapped.outputs[depth] = output
        logits = output[0, :count].astype(mx.float32)
        hidden = {tap: rows[0, :count].astype(mx.float32) for tap, rows in tapped.outputs.items()}
        mx.eval(*([logits] if feed.want_logits else []), hidden, cache.arrays)
        if encoded:
            cache.keep_vectors(_stacked(hidden, encoded))
        cache.advance(count)
        features = _stacked(hidden, feed.taps) if feed.taps else None
        return Output(np.array(logits) if feed.want_logits else None, features)

    def _new_states(self) -> dict[int, RecurrentState]:
        return {layer: RecurrentState(rule) for layer, rule in self._model.rules.items()}


def load_verifier(
    folder: ModelFolder,
    *,
    dtype: str = "float32",
    available_bytes: int | None = None,
    weights: str = AUTO,
    device: str = DEFAULT_DEVICE,  # noqa: ARG001 - the only one that it can be told
) -> MlxVerifier:
    """The model in `folder` on MLX's default device; see `engine.backends.load_verifier`."""
    number = mlx_dtype(dtype)
    architecture = read_architecture(folder.path)
    if architecture.quantization is not None:
        require_auto(weights, "a checkpoint whose weights are not quantized already")
    check_tokenizer(folder.path, architecture.config.vocab_size)
    prepare_process()
    if available_bytes is None:
        available_bytes = system_memory.available_bytes()
    model = load_model(folder.path, architecture, dtype=number, available_bytes=available_bytes)
    choose_weights(model, weights)
    return verifier_of(folder, architecture, model, dtype=dtype, weights=weights)


def prepare_process() -> None:
    """Settings of MLX that hold for all models of this process."""
    if mx.default_device() == mx.cpu:
        # MLX would fuse with the C++ compiler of the machine, if it has one, into a folder
        # that all processes share: no faster here (measured), and bits that depend on it.
        mx.disable_compile()


def verifier_of(
    folder: ModelFolder,
    architecture: MlxArchitecture,
    model: nn.Module,
    *,
    dtype: str,
    ranks: int = 1,
    weights: str = AUTO,
) -> MlxVerifier:
    """A verifier of a loaded `model` of `folder`, or of one of `ranks` even parts of it."""
    number = mlx_dtype(dtype)
    layout = kv_layout(architecture, number, ranks=ranks)
    quantization = architecture.quantization
    info = verifier_info(
        folder,
        architecture.config,
        layout,
        architecture=architecture.name,
        dtype=dtype,
        backend="mlx",
        device=device_kind(),
        quantization=quantization_of(weights, quantization.label if quantization else ""),
    )
    return MlxVerifier(TextModel(architecture, model, number, ranks=ranks), info, layout)


def _stacked(hidden: Mapping[int, mx.array], taps: Sequence[int]) -> Features:
    """The hidden states [n, taps, hidden_size] at these layers."""
    return np.stack([np.array(hidden[tap]) for tap in taps], axis=1)

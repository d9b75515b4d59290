"""A plain family's model as the compiled library takes it, and the memory that it computes in."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation

from kakeya_fleet.engine.backends.torch_backend.checkpoint import Checkpoint
from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import (
    LANES,
    AnyPanels,
    panels_of,
    read_rows,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import Part, Product
from kakeya_fleet.engine.backends.torch_backend.compiled.preview import (
    Preview,
    is_worth_it,
    preview_bytes,
    preview_of,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.product_check import (
    require_exact_products,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    BFLOAT16,
    FINE_INT4,
    FINE_INT8,
    FLOAT32,
    INT4,
    INT8,
    Batch,
    Layer,
    Matrix,
    Model,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import Workers
from kakeya_fleet.engine.backends.torch_backend.plain_families import (
    JOINT,
    LibraryLayer,
    is_plain,
)
from kakeya_fleet.engine.backends.torch_backend.rms_norm import RmsNorm
from kakeya_fleet.engine.backends.torch_backend.rotary import AngleBlocks, Rotary
from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.models.weight_choice import AUTO, BITS, head_weights

MOST_HEAD_SIZE = 512
FINER = {INT8: FINE_INT8, INT4: FINE_INT4}
"""Formats of the same weights, whose products take inputs of fifteen bits."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a decoder, in numbers."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int

    @property
    def joint(self) -> int:
        """Queries, keys and values of a row."""
        return (self.heads + 2 * self.kv_heads) * self.head_size

    @property
    def fit(self) -> bool:
        """Whether vectors of sixteen divide them, and halves of a head."""
        return (
            self.hidden % LANES == 0
            and self.inner % LANES == 0
            and self.head_size % (2 * LANES) == 0
            and self.head_size <= MOST_HEAD_SIZE
            and self.heads % self.kv_heads == 0
        )


def sizes_of(model: PreTrainedModel) -> Sizes:
    """Those of a model that `is_plain`."""
    layer = cast(LibraryLayer, model.model.layers[0])
    attention = layer.self_attn
    return Sizes(
        hidden=attention.q_proj.in_features,
        heads=attention.q_proj.out_features // attention.head_dim,
        kv_heads=attention.k_proj.out_features // attention.head_dim,
        head_size=attention.head_dim,
        inner=layer.mlp.gate_proj.out_features,
    )


def compilable(model: PreTrainedModel) -> bool:
    """Whether the library computes `model`, as transformers builds it."""
    if not is_plain(model) or not sizes_of(model).fit:
        return False
    gates = {type(layer.mlp.act_fn) for layer in model.model.layers}
    return gates <= {nn.SiLU, SiLUActivation}


class Buffers:
    """The memory of forwards of up to `rows` rows, float32."""

    def __init__(self, sizes: Sizes, rows: int) -> None:
        self.rows = rows
        self.hidden = torch.empty(rows, sizes.hidden)
        self.normed = torch.empty(rows, sizes.hidden)
        self.joint = torch.empty(rows, sizes.heads + 2 * sizes.kv_heads, sizes.head_size)
        self.mixed = torch.empty(rows, sizes.heads, sizes.head_size)
        self.totals = torch.empty(rows, sizes.heads, 1)
        self.maxima = torch.empty(rows, sizes.heads, 1)
        self.inner = torch.empty(rows, sizes.inner)
        self.addresses = {
            name: each.data_ptr() for name, each in vars(self).items() if isinstance(each, Tensor)
        }
        """By the names that `Batch` has for them."""


class CompiledDecoder:
    """Weights in panels; forwards of the calling thread's number of threads.

    One forward at a time.
    """

    def __init__(
        self,
        library: Library,
        checkpoint: Checkpoint,
        *,
        dtype: torch.dtype,
        weights: str = AUTO,
    ) -> None:
        """Reads the weights of a model that is plain and of sizes that fit, one after the other.

        So it takes the memory of the panels, and of one tensor besides.
        `weights`: one of `weight_choice.WEIGHTS`. Head and embeddings have eight bits where the
        layers have four: they are the numbers that choices are made of.
        Raises `ModelUnusable` where products of whole numbers are not exact, and what
        `Checkpoint.read_into` raises.
        """
        if weights in BITS:
            require_exact_products(library)
        self._library, self._functions = library, library.functions
        model = checkpoint.model
        self.sizes = sizes_of(model)
        body = model.model
        self._weights, self._dtype = weights, dtype
        self._head = _head(checkpoint, head_weights(weights), dtype)
        self._embedding = None if checkpoint.is_tied else _embedding(checkpoint)
        rotary = body.rotary_emb
        self.angles = AngleBlocks(Rotary(rotary.inv_freq, rotary.attention_scaling, torch.float32))
        self._kept: list[object] = []
        layers = list(self._layers(checkpoint))
        self._layer = (Layer * len(layers))(*layers)
        checkpoint.read_into(body.norm, "model.norm")
        self._last_norm = _wide(body.norm.weight)
        self._norm = RmsNorm(self._last_norm, self._epsilon)
        self._model = Model(
            layers=len(layers),
            hidden=self.sizes.hidden,
            heads=self.sizes.heads,
            kv_heads=self.sizes.kv_heads,
            head_size=self.sizes.head_size,
            inner=self.sizes.inner,
            cache_format=BFLOAT16 if dtype == torch.bfloat16 else FLOAT32,
            epsilon=self._epsilon,
            scaling=self._scaling,
            layer=self._layer,
            last_norm=self._last_norm.data_ptr(),
            head=self._head.matrix,
        )
        self._finer = _finer(self._model)
        self._workers = Workers(library)

    @property
    def layer_count(self) -> int:
        """All layers."""
        return int(self._model.layers)

    @property
    def scaling(self) -> float:
        """What scores are taken times."""
        return float(self._model.scaling)

    def embed(self, ids: Sequence[int], to: Tensor) -> None:
        """Writes those of ids into the first rows of `to` [rows, hidden], float32."""
        if self._embedding is not None:
            to[: len(ids)] = self._embedding[list(ids)]
            return
        read_rows(self._library, self._model.head, ids, to)

    def run(self, batch: Batch, first: int, end: int, phases: int, *, finely: bool = False) -> None:
        """The layers `first` to `end`, exclusive, or some phases of them.

        `finely` products in whole numbers take inputs of fifteen bits, not of eight. One row takes
        hardly longer so, many take twice as long.
        """
        self._functions.kakeya_layers(
            self._workers,
            ctypes.byref(self._finer if finely else self._model),
            ctypes.byref(batch),
            first,
            end,
            phases,
            torch.get_num_threads(),
        )

    @property
    def preview_bytes(self) -> int:
        """What a preview takes; 0 where the head is too small for one."""
        return preview_bytes(self._head) if is_worth_it(self._head) else 0

    def preview(self, sizes: Tensor) -> Preview:
        """What tells where logits are large, of inputs that are as large as `sizes` [hidden]."""
        return preview_of(self._library, self._head, sizes)

    def logits(
        self,
        batch: Batch,
        rows: Sequence[int],
        preview: Preview | None = None,
        *,
        finely: bool = False,
    ) -> Logits:
        """Those of the hidden states of some rows, [n, vocabulary].

        With a `preview` the largest of them alone, as it finds them, and -inf elsewhere.
        """
        found = np.empty((len(rows), self._head.width), np.float32)
        self._functions.kakeya_logits(
            self._workers,
            ctypes.byref(self._finer if finely else self._model),
            None if preview is None else ctypes.byref(preview.struct),
            ctypes.byref(batch),
            (ctypes.c_int32 * len(rows))(*rows),
            len(rows),
            ctypes.byref(ctypes.c_char.from_buffer(found.data)),
            torch.get_num_threads(),
        )
        return found[:, : self._head.columns]

    def normed(self, hidden: Tensor) -> Tensor:
        """What the final norm makes of hidden states [n, hidden], for whoever reads them.

        The library norms what it makes logits of itself, in another order of sums.
        """
        found: Tensor = self._norm(hidden)
        return found

    def _layers(self, checkpoint: Checkpoint) -> Iterator[Layer]:
        """Each layer's weights in panels; those of the library's layer are freed."""
        layers = checkpoint.model.model.layers
        for index in range(len(layers)):
            name = f"model.layers.{index}"
            layer = cast(LibraryLayer, layers[index])
            attention = layer.self_attn
            self._epsilon = layer.input_layernorm.variance_epsilon
            self._scaling = attention.scaling
            parts = _panels(checkpoint, name, layer, self._weights, self._dtype)
            checkpoint.read_into(layers[index], name)
            norms = [
                _wide(layer.input_layernorm.weight),
                _wide(layer.post_attention_layernorm.weight),
            ]
            of_heads = [
                _wide(norm.weight)
                for norm in (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
                if norm is not None
            ]
            self._kept.append((parts, norms, of_heads))
            query_norm, key_norm = (
                (norm.data_ptr() for norm in of_heads) if of_heads else (None, None)
            )
            layers[index] = nn.Identity()
            yield Layer(
                *(part.matrix for part in parts),
                *(norm.data_ptr() for norm in norms),
                query_norm,
                key_norm,
            )


def _finer(model: Model) -> Model:
    """The same weights; ctypes has it keep its layers."""
    found = Model.from_buffer_copy(model)
    found.layer = (Layer * model.layers)(
        *(_finer_layer(model.layer[i]) for i in range(model.layers))
    )
    _refine(found.head)
    return found


def _finer_layer(layer: Layer) -> Layer:
    found = Layer.from_buffer_copy(layer)
    for matrix in (found.joint, found.output, found.gate_up, found.down):
        _refine(matrix)
    return found


def _refine(matrix: Matrix) -> None:
    matrix.format = FINER.get(matrix.format, matrix.format)


def _head(checkpoint: Checkpoint, weights: str, dtype: torch.dtype) -> AnyPanels:
    """The head in panels, of the embedding's weights where they are the same."""
    model = checkpoint.model
    if not checkpoint.is_tied:
        return panels_of(Product([_taken(checkpoint, model, "", "lm_head")]), weights, dtype)

    def read() -> tuple[Tensor, None]:
        tied = nn.Module()
        tied.model = nn.Module()
        tied.model.embed_tokens = model.model.embed_tokens
        tied.lm_head = model.lm_head
        checkpoint.read_into(tied)
        weight: Tensor = model.lm_head.weight.detach()
        model.model.embed_tokens = model.lm_head = nn.Identity()
        return weight, None

    outputs, inputs = model.lm_head.out_features, model.lm_head.in_features
    part = Part(outputs, inputs, has_bias=False, read=read)
    return panels_of(Product([part]), weights, dtype)


def _embedding(checkpoint: Checkpoint) -> Tensor:
    embedding = checkpoint.model.model.embed_tokens
    checkpoint.read_into(embedding, "model.embed_tokens")
    found: Tensor = embedding.weight.detach()
    checkpoint.model.model.embed_tokens = nn.Identity()
    return found


def _panels(
    checkpoint: Checkpoint, name: str, layer: LibraryLayer, weights: str, dtype: torch.dtype
) -> tuple[AnyPanels, ...]:
    """Those of a layer's products, which the library's layer has no longer."""
    attention, mlp = f"{name}.self_attn", f"{name}.mlp"

    def taken(names: tuple[str, ...], parent: object, path: str) -> list[Part]:
        return [_taken(checkpoint, parent, path, each) for each in names]

    joint, gates = JOINT
    products = (
        Product(taken(joint, layer.self_attn, attention)),
        Product(taken(("o_proj",), layer.self_attn, attention)),
        Product(taken(gates, layer.mlp, mlp), gated=True),
        Product(taken(("down_proj",), layer.mlp, mlp)),
    )
    return tuple(panels_of(product, weights, dtype) for product in products)


def _taken(checkpoint: Checkpoint, parent: object, path: str, name: str) -> Part:
    """The linear layer `name` of `parent`, which is `path`; read, `parent` has it no longer."""
    linear: nn.Linear = getattr(parent, name)
    sizes = linear.out_features, linear.in_features

    def read() -> tuple[Tensor, Tensor | None]:
        linear: nn.Linear = getattr(parent, name)
        checkpoint.read_into(linear, f"{path}.{name}" if path else name)
        setattr(parent, name, nn.Identity())
        return linear.weight.detach(), None if linear.bias is None else linear.bias.detach()

    return Part(*sizes, has_bias=linear.bias is not None, read=read)


def _wide(weight: Tensor) -> Tensor:
    return weight.detach().to(torch.float32).contiguous()

"""A drafter's torch tensors; products and norms are fused into as few operations as can be.

A drafter decides nothing, so that its products may round as they like: in bfloat16 its weights are
kept in eight bits, where the compiled library is there, and a block is one call of its own library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from kakeya_fleet.engine.backends.dflash import checkpoint
from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.kernels import DraftEnds, Indices, Turns
from kakeya_fleet.engine.backends.torch_backend.compiled.draft_structs import DRAFTER
from kakeya_fleet.engine.backends.torch_backend.compiled.library import library, library_of
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_linear import (
    Products,
    WholeLinear,
    fits_groups,
)
from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.dflash.compiled_block import (
    CompiledBlock,
    compiles,
)
from kakeya_fleet.engine.backends.torch_backend.dflash.compiled_head import CompiledHead
from kakeya_fleet.engine.backends.torch_backend.dflash.context_cache import ContextCache
from kakeya_fleet.engine.backends.torch_backend.dflash.target import read_target
from kakeya_fleet.engine.backends.torch_backend.dtypes import on_host, torch_dtype
from kakeya_fleet.engine.backends.torch_backend.half_linear import HalfLinear
from kakeya_fleet.engine.backends.torch_backend.packed_linear import can_pack, packed
from kakeya_fleet.engine.backends.torch_backend.rms_norm import RmsNorm
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import StoredTensor, read_tensors
from kakeya_fleet.engine.contracts.evicted_store import Floats
from kakeya_fleet.engine.models.model_folder import ModelFolder

Map = Callable[[Tensor], Tensor]
DRAFT_BITS = 8
"""Of the weights of products in bfloat16."""


class TorchDraftKernels:
    """`DraftKernels` of `engine.backends.dflash.kernels`, on one device."""

    backend = "torch"

    def __init__(self, dtype: str, device: Device = HOST) -> None:
        """Raises `BadParameters` for another `dtype` than `float32` and `bfloat16`."""
        self.dtype = dtype
        self._device = device
        self._number = torch_dtype(dtype)
        self.item_bytes = self._number.itemsize
        self._products: Products | None = None
        if device.is_host and self._number == torch.bfloat16 and (found := library()) is not None:
            self._products = Products(found)

    def read_weights(self, folder: Path, config: DFlashConfig) -> dict[str, Tensor]:
        """Of products in the number format, of norms in float32."""
        return checkpoint.read_weights(
            folder, config, self._read, products=self._number, norms=torch.float32
        )

    def read_ends(self, target: ModelFolder, config: DFlashConfig) -> DraftEnds[Tensor]:
        """The ends of the model in `target`."""
        ends = read_target(target, config, self._number, self._device)

        def embedding(token_id: int) -> Tensor:
            return ends.embedding[token_id].to(torch.float32)

        whole = self._whole(ends.head)
        if whole is None:
            return DraftEnds(embedding, self.product(ends.head, config.block_size))
        found = library_of(DRAFTER)
        candidates = None if found is None else CompiledHead(found, whole.panels)
        return DraftEnds(embedding, whole.forward, candidates)

    def new_context(self, config: DFlashConfig) -> ContextCache:
        """An empty context."""
        shape = (config.layer_count, config.kv_heads, config.head_dim)
        return ContextCache(shape, config.context_positions, config.block_size, self._device)

    def whole_block(
        self, weights: Mapping[str, Tensor], config: DFlashConfig
    ) -> CompiledBlock | None:
        """On a processor, in bfloat16, of sizes that the compiled library multiplies."""
        if self._products is None or not compiles(config):
            return None
        found = library_of(DRAFTER)
        return None if found is None else CompiledBlock(found, weights, config)

    def computing(self) -> AbstractContextManager[object]:
        """Without gradients."""
        return torch.inference_mode()

    def settle(self, array: Tensor) -> None:
        """Nothing: all is computed in the order in which it is asked for."""

    def array(self, numbers: Floats) -> Tensor:
        """In the same memory where that is the host's."""
        return torch.from_numpy(numbers).to(self._device.place)

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Concatenated in the first dimension."""
        return torch.cat(tuple(parts))

    def repeated(self, row: Tensor, count: int, scale: float) -> Tensor:
        """[count, n] of `row` [n] times `scale`; one row in one memory."""
        return (row * scale).expand(count, -1)

    def norm(self, gain: Tensor, eps: float) -> Map:
        """`RmsNorm`."""
        return RmsNorm(gain, eps).forward

    def product(self, weight: Tensor, rows: int) -> Map:
        """float32 weights are kept in half the bytes where that loses nothing.

        Those in bfloat16 are kept in eight bits, where they fit.
        """
        whole = self._whole(weight)
        if whole is not None:
            return whole.forward
        linear = _linear(weight, rows)
        if weight.dtype == torch.float32:
            return linear.forward
        return lambda values: linear(values.to(weight.dtype)).to(torch.float32)

    def normed_product(self, gain: Tensor, eps: float, weight: Tensor, rows: int) -> Map:
        """The scale that a product's weight is kept with becomes part of the norm's gain."""
        if weight.dtype != torch.float32:
            alone, multiply = RmsNorm(gain, eps).forward, self.product(weight, rows)
            return lambda values: multiply(alone(values))
        linear = _linear(weight, rows)
        scaled = RmsNorm(gain, eps, linear.fold() if isinstance(linear, HalfLinear) else 1).forward
        forward = linear.forward
        return lambda values: forward(scaled(values))

    def turned_heads(
        self, made: Tensor, norm: Map, count: int, turns: Turns[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The first `count` heads of `made`, normed and turned, and the others."""
        cos, sin = turns[0][:, None], turns[1][:, None]
        made = made.view(len(made), -1, cos.shape[-1])
        heads = norm(made[:, :count])
        turned = (heads * cos).addcmul_(heads.roll(heads.shape[-1] // 2, -1), sin)
        return turned.transpose(0, 1), made[:, count:].transpose(0, 1)

    def gated(self, made: Tensor) -> Tensor:
        """silu(a) * b."""
        gate, up = made.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)

    def convolved(self, values: Tensor, deltas: Tensor, base: Tensor, side: int) -> Tensor:
        """One tap after the other, the row's own first."""
        rows, channels = values.shape
        sides, taps, _ = base.shape
        own = deltas.view(rows, sides, taps, -1, 1)[:, side]
        factors = (own + base[side].view(taps, own.shape[2], -1)).view(rows, taps, channels)
        made = factors[:, 0] * values
        for tap in range(1, min(taps, rows)):
            made[tap:].addcmul_(factors[tap:, tap], values[:-tap])
        return made

    def rows(self, table: Tensor, indices: Indices) -> Tensor:
        """A copy."""
        return table.index_select(0, torch.from_numpy(indices).to(self._device.place))

    def numbers(self, array: Tensor) -> Floats:
        """In the same memory where it is float32, and the host's."""
        return on_host(array.to(torch.float32))

    def best(self, logits: Tensor) -> list[int]:
        """On the host by NumPy, with vector instructions, unlike torch: a tenth of the time."""
        best = logits.numpy().argmax(axis=1) if self._device.is_host else logits.argmax(dim=1)
        tokens: list[int] = best.tolist()
        return tokens

    def _whole(self, weight: Tensor) -> WholeLinear | None:
        """In eight bits, where groups that share a scale divide its inputs."""
        plain = _plain(weight)
        if self._products is None or not fits_groups(plain):
            return None
        return WholeLinear(self._products, plain, DRAFT_BITS)

    def _read(
        self, stored: Mapping[str, StoredTensor], names: Iterable[str], dtype: torch.dtype
    ) -> dict[str, Tensor]:
        return read_tensors(stored, names, dtype, device=self._device)


def _plain(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def _linear(weight: Tensor, rows: int) -> nn.Module:
    linear = _plain(weight)
    return packed(linear, rows) if can_pack(weight.dtype, Device(weight.device)) else linear

"""A drafter's MLX arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.dflash import checkpoint
from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.kernels import DraftEnds, Indices, Turns
from kakeya_fleet.engine.backends.mlx_backend.dflash.context_cache import ContextCache
from kakeya_fleet.engine.backends.mlx_backend.dflash.target import read_target
from kakeya_fleet.engine.backends.mlx_backend.dtypes import mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.contracts.evicted_store import Floats
from kakeya_fleet.engine.models.model_folder import ModelFolder

Map = Callable[[mx.array], mx.array]


class MlxDraftKernels:
    """`DraftKernels` of `engine.backends.dflash.kernels`, on MLX's default device."""

    backend = "mlx"

    def __init__(self, dtype: str) -> None:
        """Raises `BadParameters` for another `dtype` than `float32` and `bfloat16`."""
        self.dtype = dtype
        self._number = mlx_dtype(dtype)
        self.item_bytes = self._number.size

    def read_weights(self, folder: Path, config: DFlashConfig) -> dict[str, mx.array]:
        """Of products in the number format, of norms in float32."""
        return checkpoint.read_weights(
            folder, config, read_tensors, products=self._number, norms=mx.float32
        )

    def read_ends(self, target: ModelFolder, config: DFlashConfig) -> DraftEnds[mx.array]:
        """The ends of the model in `target`; quantized ones stay packed."""
        ends = read_target(target, config, self._number)
        return DraftEnds(ends.embedding.row, ends.head.product)

    def new_context(self, config: DFlashConfig) -> ContextCache:
        """An empty context."""
        shape = (config.layer_count, config.kv_heads, config.head_dim)
        return ContextCache(shape, config.context_positions)

    def whole_block(self, weights: Mapping[str, mx.array], config: DFlashConfig) -> None:
        """None: what is asked for waits, and is one graph."""

    def computing(self) -> AbstractContextManager[object]:
        """Nothing is needed."""
        return nullcontext()

    def settle(self, array: mx.array) -> None:
        """Computes it."""
        mx.eval(array)

    def array(self, numbers: Floats) -> mx.array:
        """A copy."""
        return mx.array(numbers)

    def joined(self, parts: Sequence[mx.array]) -> mx.array:
        """Concatenated in the first dimension."""
        return mx.concatenate(list(parts))

    def repeated(self, row: mx.array, count: int, scale: float) -> mx.array:
        """[count, n] of `row` [n] times `scale`; one row in one memory."""
        return mx.broadcast_to(row * scale, (count, len(row)))

    def norm(self, gain: mx.array, eps: float) -> Map:
        """In plain operations."""
        mx.eval(gain)
        return lambda values: _normed(values, gain, eps)

    def product(self, weight: mx.array, rows: int) -> Map:  # noqa: ARG002 the contract's
        """The weight is kept transposed."""
        kept = mx.contiguous(weight.T)
        mx.eval(kept)
        return lambda values: (values.astype(kept.dtype) @ kept).astype(mx.float32)

    def normed_product(self, gain: mx.array, eps: float, weight: mx.array, rows: int) -> Map:
        """One behind the other."""
        norm, multiply = self.norm(gain, eps), self.product(weight, rows)
        return lambda values: multiply(norm(values))

    def turned_heads(
        self, made: mx.array, norm: Map, count: int, turns: Turns[mx.array]
    ) -> tuple[mx.array, mx.array]:
        """The first `count` heads of `made`, normed and turned, and the others."""
        cos, sin = turns[0][:, None], turns[1][:, None]
        made = made.reshape(len(made), -1, cos.shape[-1])
        heads = norm(made[:, :count])
        turned = heads * cos + mx.roll(heads, heads.shape[-1] // 2, -1) * sin
        return turned.swapaxes(0, 1), made[:, count:].swapaxes(0, 1)

    def gated(self, made: mx.array) -> mx.array:
        """silu(a) * b."""
        gate, up = mx.split(made, 2, axis=-1)
        return gate * mx.sigmoid(gate) * up

    def convolved(self, values: mx.array, deltas: mx.array, base: mx.array, side: int) -> mx.array:
        """One tap after the other, the row's own first."""
        rows, channels = values.shape
        sides, taps, _ = base.shape
        own = deltas.reshape(rows, sides, taps, -1, 1)[:, side]
        factors = (own + base[side].reshape(taps, own.shape[2], -1)).reshape(rows, taps, channels)
        made = factors[:, 0] * values
        for tap in range(1, min(taps, rows)):
            before = mx.concatenate([mx.zeros((tap, channels)), values[:-tap]])
            made = made + factors[:, tap] * before
        return made

    def rows(self, table: mx.array, indices: Indices) -> mx.array:
        """A copy."""
        return table[mx.array(indices)]

    def numbers(self, array: mx.array) -> Floats:
        """Computes all that it is made of."""
        return np.array(array.astype(mx.float32))

    def best(self, logits: mx.array) -> list[int]:
        """Computes all that they are made of."""
        tokens = mx.argmax(logits, axis=1)
        mx.eval(tokens)
        found: list[int] = np.array(tokens).tolist()
        return found


def _normed(values: mx.array, gain: mx.array, eps: float) -> mx.array:
    squares = mx.mean(values * values, axis=-1, keepdims=True)
    return values * mx.rsqrt(squares + eps) * gain

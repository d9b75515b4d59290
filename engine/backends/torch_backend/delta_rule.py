"""The gated delta rule, token by token in one fixed shape.

Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2
with Delta Rule" (2024). The library runs blocks and single tokens through
different formulas; here a token's bits do not depend on the block it came in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from kakeya_fleet.engine.backends.torch_backend.activation import PiecewiseActivation
from kakeya_fleet.engine.backends.torch_backend.recurrent_shape import RecurrentShape

if TYPE_CHECKING:
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

NORM_EPSILON = 1e-6
"""Of the length that queries and keys are divided by."""


@dataclass(frozen=True, slots=True)
class DeltaRows:
    """What n tokens do to the state, in float32.

    `queries` and `keys` are [n, heads, key_dim, 1], `values` [n, heads, 1,
    value_dim], `decay` (kept share of the state) and `beta` (share of the
    difference that is written) [n, heads, 1, 1].
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    decay: Tensor
    beta: Tensor


class DeltaRule:
    """The weights of one layer that its state depends on, and how it moves."""

    def __init__(self, layer: Qwen3_5GatedDeltaNet, shape: RecurrentShape) -> None:
        self.shape = shape
        # [kernel, channels]: oldest row first, as the library's convolution has it.
        self._kernel = layer.conv1d.weight[:, 0].t().to(torch.float32).contiguous()
        self._activation = PiecewiseActivation(ACT2FN[layer.activation])
        self._decay_rate = layer.A_log.to(torch.float32).exp()
        self._decay_bias = layer.dt_bias.to(torch.float32)
        self._exp = PiecewiseActivation(_Exp())
        self._sigmoid = PiecewiseActivation(nn.Sigmoid())
        self._softplus = PiecewiseActivation(nn.Softplus())

    @property
    def place(self) -> torch.device:
        """Where its weights are, and the states with them."""
        place: torch.device = self._kernel.device
        return place

    def rows(self, inputs: Tensor, gates: Tensor) -> DeltaRows:
        """What n tokens do, each by itself.

        `inputs` [kernel - 1 + n, channels] are their projected rows after those
        of the tokens before them, `gates` [n, 2, value_heads] of writing and
        decay.
        """
        shape = self.shape
        count = gates.shape[0]
        key_width = shape.key_heads * shape.key_dim
        queries, keys, values = torch.tensor_split(
            self._convolved(inputs, count), (key_width, 2 * key_width), dim=1
        )
        beta = self._sigmoid(gates[:, 0]).to(torch.float32)
        rate = self._softplus(gates[:, 1].to(torch.float32) + self._decay_bias)
        decay = self._exp(-self._decay_rate * rate)
        return DeltaRows(
            queries=self._heads(queries) / shape.key_dim**0.5,
            keys=self._heads(keys),
            values=values.reshape(count, shape.value_heads, 1, shape.value_dim),
            decay=decay[:, :, None, None],
            beta=beta[:, :, None, None],
        )

    def run(self, rows: DeltaRows, base: Tensor, state: Tensor) -> Tensor:
        """Writes into `state` what `base` becomes by `rows`; the outputs on the way.

        Both are [heads, key_dim, value_dim], the outputs [n, heads, value_dim].
        With S' = decay * S the rule is
        S = S' + k (beta * (v - k^T S'))^T and the output q^T S.
        """
        outputs = torch.empty_like(rows.values)
        before = base
        for token, output in enumerate(outputs):
            torch.mul(before, rows.decay[token], out=state)
            key = rows.keys[token]
            difference = rows.values[token] - torch.bmm(key.transpose(1, 2), state)
            state.addcmul_(key, difference.mul_(rows.beta[token]))
            torch.bmm(rows.queries[token].transpose(1, 2), state, out=output)
            before = state
        return outputs.squeeze(2)

    def _convolved(self, inputs: Tensor, count: int) -> Tensor:
        """The causal convolution's activated rows [count, channels], in float32."""
        rows = inputs.to(torch.float32)
        # Products and sums apart: each rounds correctly wherever in a tensor it is.
        total = rows[:count] * self._kernel[0]
        for offset in range(1, self.shape.kernel):
            total += rows[offset : offset + count] * self._kernel[offset]
        activated: Tensor = self._activation(total.to(inputs.dtype))
        return activated.to(torch.float32)

    def _heads(self, rows: Tensor) -> Tensor:
        """Rows [n, key_heads * key_dim] as unit vectors [n, value_heads, key_dim, 1]."""
        shape = self.shape
        heads = rows.reshape(-1, shape.key_heads, shape.key_dim)
        length = (heads * heads).sum(dim=-1, keepdim=True)
        unit = heads * torch.rsqrt(length + NORM_EPSILON)
        return unit.repeat_interleave(shape.value_heads // shape.key_heads, dim=1)[..., None]


class _Exp(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        """`exp` of each element."""
        return values.exp()

"""The sizes of a recurrent layer's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kakeya_fleet.engine.contracts.positions import WIDE_BLOCK

if TYPE_CHECKING:
    import transformers

JOURNAL_TOKENS = WIDE_BLOCK
"""The most tokens of one forward: what a state can be rolled back by."""


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """The sizes of a gated delta net's state.

    Each of `value_heads` heads has a matrix [key_dim, value_dim] in float32; the
    convolution before it reads `kernel - 1` former rows of `channels` numbers
    in `dtype`.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: transformers.PretrainedConfig, dtype: torch.dtype) -> RecurrentShape:
        """The shape that all recurrent layers of `config` have."""
        return cls(
            key_heads=config.linear_num_key_heads,
            value_heads=config.linear_num_value_heads,
            key_dim=config.linear_key_head_dim,
            value_dim=config.linear_value_head_dim,
            kernel=config.linear_conv_kernel_dim,
            dtype=dtype,
        )

    @property
    def channels(self) -> int:
        """Numbers of a token's convolved row: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_bytes(self) -> int:
        """Bytes of all tensors of a `RecurrentState`."""
        matrix = self.value_heads * self.key_dim * self.value_dim * torch.float32.itemsize
        rows = (self.kernel - 1 + JOURNAL_TOKENS) * self.channels
        gates = JOURNAL_TOKENS * 2 * self.value_heads
        return 2 * matrix + (rows + gates) * self.dtype.itemsize

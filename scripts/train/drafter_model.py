"""A DFlash drafter as it is trained: many blocks of a row in one pass.

Parameter names are those of DFlash checkpoints, version 1. A block is the token at its anchor and
masks behind it; its rows see the context vectors of the positions before the anchor, and each
other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class DrafterShape:
    """The size of a drafter."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    taps: tuple[int, ...]
    """Layers of the verifier whose outputs make the context vectors."""
    mask_token: int
    rope_theta: float
    norm_eps: float


class Norm(nn.Module):
    """Root mean square norm (Zhang and Sennrich, 2019), in float32 whatever comes in."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Of the last dimension."""
        return functional.rms_norm(values.float(), self.weight.shape, self.weight, self._eps)


class _Attention(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self._shape = shape
        queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.norm_eps)
        self.k_norm = Norm(shape.head_dim, shape.norm_eps)

    def forward(
        self,
        block: torch.Tensor,
        context: torch.Tensor,
        block_rotation: torch.Tensor,
        context_rotation: torch.Tensor,
        seen: torch.Tensor,
    ) -> torch.Tensor:
        """`block` [rows, n, hidden], `context` [rows, m, hidden], `seen` [rows, 1, n, m + n]."""
        queries = rotate(self.q_norm(self._split(self.q_proj(block))), block_rotation)
        own = rotate(self.k_norm(self._split(self.k_proj(block))), block_rotation)
        past = rotate(self.k_norm(self._split(self.k_proj(context))), context_rotation)
        keys = torch.cat([past, own], dim=2)
        values = torch.cat(
            [self._split(self.v_proj(context)), self._split(self.v_proj(block))], dim=2
        )
        found = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=seen, enable_gqa=True
        )
        attended: torch.Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return attended

    def _split(self, flat: torch.Tensor) -> torch.Tensor:
        heads: torch.Tensor = flat.unflatten(2, (-1, self._shape.head_dim))  # type: ignore[no-untyped-call]
        return heads.transpose(1, 2)


class _Mlp(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        gated = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        projected: torch.Tensor = self.down_proj(gated)
        return projected


class _Layer(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.self_attn = _Attention(shape)
        self.mlp = _Mlp(shape)
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)

    def forward(self, block: torch.Tensor, *where: torch.Tensor) -> torch.Tensor:
        block = block + self.self_attn(self.input_layernorm(block), *where)
        changed: torch.Tensor = self.mlp(self.post_attention_layernorm(block))
        return block + changed


class Drafter(nn.Module):
    """The drafter; the verifier's embedding and head are the caller's."""

    frequencies: torch.Tensor

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(shape.taps) * shape.hidden, shape.hidden, bias=False)
        self.hidden_norm = Norm(shape.hidden, shape.norm_eps)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.norm_eps)
        halves = torch.arange(0, shape.head_dim, 2, dtype=torch.float) / shape.head_dim
        self.register_buffer("frequencies", shape.rope_theta**-halves, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** 0.5)

    def encode(self, taps: torch.Tensor) -> torch.Tensor:
        """Context vectors [rows, n, hidden] of tapped hidden states [rows, n, taps * hidden]."""
        vectors: torch.Tensor = self.hidden_norm(self.fc(taps))
        return vectors

    def forward(
        self,
        embedded: torch.Tensor,
        context: torch.Tensor,
        anchors: torch.Tensor,
        starts: torch.Tensor,
    ) -> torch.Tensor:
        """Hidden states [rows, blocks, block_size, hidden], to be read by the verifier's head.

        Args:
            embedded: the blocks' tokens and masks, embedded, [rows, blocks, block_size, hidden].
            context: context vectors of positions 0 to m - 1, [rows, m, hidden].
            anchors: the positions of the blocks' first tokens, [rows, blocks].
            starts: the first position whose context vector is there, [rows].
        """
        rows, blocks, size, hidden = embedded.shape
        count = context.shape[1]
        offsets = torch.arange(size, device=embedded.device)
        positions = (anchors[:, :, None] + offsets).flatten(1)
        numbers = torch.arange(count, device=embedded.device)
        behind = numbers < anchors[:, :, None]
        behind = behind & (numbers >= starts[:, None, None])
        past = behind[:, :, None].expand(-1, -1, size, -1).flatten(1, 2)
        group = torch.arange(blocks, device=embedded.device).repeat_interleave(size)
        own = (group[:, None] == group[None, :]).expand(rows, -1, -1)
        seen = torch.cat([past, own], dim=2)[:, None]
        where = (
            context,
            self.rotation(positions),
            self.rotation(numbers[None]),
            seen,
        )
        block = embedded.flatten(1, 2)
        for layer in self.layers:
            block = layer(block, *where)
        normed: torch.Tensor = self.norm(block)
        return normed.view(rows, blocks, size, hidden)

    def rotation(self, positions: torch.Tensor) -> torch.Tensor:
        """Cosines and sines [rows, 1, n, 2, head_dim] of positions [rows, n]."""
        angles = positions[:, None, :, None].float() * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return torch.stack([angles.cos(), angles.sin()], dim=3)


def rotate(vectors: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """`vectors` [rows, heads, n, head_dim] turned by their positions (Su et al., 2021)."""
    low, high = vectors.chunk(2, dim=-1)
    turned = torch.cat([-high, low], dim=-1)
    return vectors * rotation[:, :, :, 0] + turned * rotation[:, :, :, 1]

"""A DFlash drafter as it is trained: many blocks of a row in one pass.

Parameter names are those of DFlash checkpoints, version 1 or 2. A block is the token at its anchor
and masks behind it; its rows see the context vectors of the positions before the anchor, and each
other. What version 2 has beside is described at `engine.backends.dflash.convolution` and
`.selector`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from kakeya_fleet.engine.backends.dflash.convolution import SIDES
from kakeya_fleet.engine.backends.dflash.version_2 import Version2


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
    version_2: Version2 | None = None
    vocabulary: int = 0
    """Of the verifier; only the tables of a selector are as long."""


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
        # Fast attention under a mask has no notion of heads that share keys.
        shared = self._shape.heads // self._shape.kv_heads
        found = functional.scaled_dot_product_attention(
            queries,
            keys.repeat_interleave(shared, 1),
            values.repeat_interleave(shared, 1),
            attn_mask=seen,
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


class _Convolution(nn.Module):
    """The grouped dynamic convolution around a sublayer; a new one changes nothing."""

    def __init__(self, shape: DrafterShape, version_2: Version2) -> None:
        super().__init__()
        convolution = version_2.convolution
        self._taps, groups = convolution.taps, shape.hidden // convolution.group_size
        base = torch.zeros(SIDES, self._taps, shape.hidden)
        base[:, 0] = 1.0
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = nn.Linear(shape.hidden, SIDES * self._taps * groups, bias=False)

    def deltas(self, normed: torch.Tensor) -> torch.Tensor:
        """What rows [rows, n, hidden] add to the taps, [rows, n, sides, taps, groups, 1]."""
        made: torch.Tensor = self.kernel_projection(normed)
        return made.view(*made.shape[:2], SIDES, self._taps, -1, 1)

    def forward(
        self, values: torch.Tensor, deltas: torch.Tensor, side: int, size: int
    ) -> torch.Tensor:
        """Of `values` [rows, n, hidden], blocks of `size` rows one after the other."""
        groups = deltas.shape[4]
        base = self.base_kernel[side].view(self._taps, groups, -1)
        factors = (base + deltas[:, :, side]).flatten(3)
        blocks = values.unflatten(1, (-1, size))  # type: ignore[no-untyped-call]
        made = factors[:, :, 0] * values
        for tap in range(1, min(self._taps, size)):
            before = functional.pad(blocks[:, :, :-tap], (0, 0, tap, 0)).flatten(1, 2)
            made = made + factors[:, :, tap] * before
        return made


class _Layer(nn.Module):
    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.self_attn = _Attention(shape)
        self.mlp = _Mlp(shape)
        self.input_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = Norm(shape.hidden, shape.norm_eps)
        self.convolved = shape.version_2 is not None
        if shape.version_2 is not None:
            self.attention_conv = _Convolution(shape, shape.version_2)
            self.mlp_conv = _Convolution(shape, shape.version_2)

    def forward(self, block: torch.Tensor, size: int, *where: torch.Tensor) -> torch.Tensor:
        """`block` [rows, n, hidden], blocks of `size` rows."""
        normed = self.input_layernorm(block)
        if not self.convolved:
            block = block + self.self_attn(normed, *where)
            changed: torch.Tensor = self.mlp(self.post_attention_layernorm(block))
            return block + changed
        around = self.attention_conv
        deltas = around.deltas(normed)
        found = self.self_attn(around(normed, deltas, 0, size), *where)
        block = block + around(found, deltas, 1, size)
        normed, around = self.post_attention_layernorm(block), self.mlp_conv
        deltas = around.deltas(normed)
        made: torch.Tensor = around(self.mlp(around(normed, deltas, 0, size)), deltas, 1, size)
        return block + made


class Selector(nn.Module):
    """What a step from one token to the next is worth besides the next one's logit: at first 0.

    With A and B the tables and h a row's hidden state, <A[p] * project(h), B[c]>.
    """

    def __init__(self, shape: DrafterShape, version_2: Version2) -> None:
        super().__init__()
        rank = version_2.selector.rank
        self.hidden_projection = nn.Linear(shape.hidden, rank, bias=False)
        self.predecessor_codebook = nn.Parameter(torch.randn(shape.vocabulary, rank))
        self.successor_codebook = nn.Parameter(torch.zeros(shape.vocabulary, rank))

    def gates(self, hidden: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """A[p] * project(h) [.., rank] of hidden states [.., hidden] behind tokens [..]."""
        rows = functional.embedding(before, self.predecessor_codebook)
        projected: torch.Tensor = self.hidden_projection(hidden)
        return rows * projected


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
        self.candidate_selector = (
            None if shape.version_2 is None else Selector(shape, shape.version_2)
        )
        halves = torch.arange(0, shape.head_dim, 2, dtype=torch.float) / shape.head_dim
        self.register_buffer("frequencies", shape.rope_theta**-halves, persistent=False)
        for name, parameter in self.named_parameters():
            if name.endswith("kernel_projection.weight"):
                nn.init.zeros_(parameter)
            elif parameter.ndim == 2 and not name.endswith("_codebook"):
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
            block = layer(block, size, *where)
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

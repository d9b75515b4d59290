"""The numbers of GGUF's blocks, as ggml defines them, bit for bit those of its reference.

Each kernel takes blocks as they lie in the file, uint8 [blocks, bytes of one], and gives
float32 [blocks, values of one]. The order of the float32 operations is that of ggml's
`dequantize_row_*`: another order rounds otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kakeya_fleet.engine.models.gguf.tensor_types import TensorType

IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the 16 indices of IQ4_NL and IQ4_XS stand for."""


def dequantize(blocks: Tensor, kind: TensorType) -> Tensor:
    """The float32 numbers of `blocks`, uint8 [blocks, bytes], of type `kind`; flat."""
    return KERNELS[kind.name](blocks).reshape(-1)


def _half(part: Tensor) -> Tensor:
    """The float16 number of each block, [blocks, 2] bytes -> float32 [blocks, 1]."""
    return part.contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor, width: int) -> Tensor:
    """Of each run of `width` bytes its low halves, then its high ones; [blocks, 2 x bytes]."""
    runs = packed.reshape(packed.shape[0], -1, 1, width)
    return torch.cat((runs & 0x0F, runs >> 4), dim=2).reshape(packed.shape[0], -1)


def _pairs(packed: Tensor, width: int) -> Tensor:
    """Of each run of `width` bytes its bits 0-1, then 2-3, 4-5 and 6-7; [blocks, 4 x bytes]."""
    runs = packed.reshape(packed.shape[0], -1, 1, width)
    parts = [(runs >> shift) & 3 for shift in (0, 2, 4, 6)]
    return torch.cat(parts, dim=2).reshape(packed.shape[0], -1)


def _bits(packed: Tensor) -> Tensor:
    """Of each run of 32 bytes its bits 0, then 1 and so on; [blocks, 8 x bytes]."""
    runs = packed.reshape(packed.shape[0], -1, 1, 32)
    parts = [(runs >> shift) & 1 for shift in range(8)]
    return torch.cat(parts, dim=2).reshape(packed.shape[0], -1)


def _byte_bits(packed: Tensor) -> Tensor:
    """The bits of each byte, lowest first; [blocks, 8 x bytes]."""
    bytes_ = packed.reshape(packed.shape[0], -1, 1)
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((bytes_ >> shifts) & 1).reshape(packed.shape[0], -1)


def _f32(blocks: Tensor) -> Tensor:
    return blocks.contiguous().view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    return blocks.contiguous().view(torch.float16).float()


def _bf16(blocks: Tensor) -> Tensor:
    # Widened as bits: a conversion of numbers would quiet signalling NaNs.
    return (blocks.contiguous().view(torch.int16).int() << 16).view(torch.float32)


def _q4_0(blocks: Tensor) -> Tensor:
    levels = _nibbles(blocks[:, 2:], 16).to(torch.int8) - 8
    return _half(blocks[:, :2]) * levels.float()


def _q4_1(blocks: Tensor) -> Tensor:
    levels = _nibbles(blocks[:, 4:], 16).float()
    return _half(blocks[:, :2]) * levels + _half(blocks[:, 2:4])


def _fifth(blocks: Tensor, start: int) -> Tensor:
    """The levels, 0 to 31, of a block whose fifth bits begin at byte `start`."""
    high = _byte_bits(blocks[:, start : start + 4])
    return _nibbles(blocks[:, start + 4 :], 16) | (high << 4)


def _q5_0(blocks: Tensor) -> Tensor:
    levels = _fifth(blocks, 2).to(torch.int8) - 16
    return _half(blocks[:, :2]) * levels.float()


def _q5_1(blocks: Tensor) -> Tensor:
    return _half(blocks[:, :2]) * _fifth(blocks, 4).float() + _half(blocks[:, 2:4])


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].contiguous().view(torch.int8).float() * _half(blocks[:, :2])


def _grouped(scale: Tensor, levels: Tensor, shift: Tensor | None = None) -> Tensor:
    """`scale` [blocks, groups] times the levels of each group, less its `shift`."""
    groups = levels.reshape(*scale.shape, -1)
    values = scale.unsqueeze(-1) * groups
    return values if shift is None else values - shift.unsqueeze(-1)


def _q2_k(blocks: Tensor) -> Tensor:
    scales = blocks[:, :16]
    scale = _half(blocks[:, 80:82]) * (scales & 0x0F).float()
    least = _half(blocks[:, 82:84]) * (scales >> 4).float()
    return _grouped(scale, _pairs(blocks[:, 16:80], 32).float(), least)


def _q3_k(blocks: Tensor) -> Tensor:
    # 16 scales of six bits: their low halves in eight bytes, their high pairs in four.
    packed = blocks[:, 96:108]
    low = _nibbles(packed[:, :8], 8)
    high = _pairs(packed[:, 8:], 4)
    scales = (low | (high << 4)).to(torch.int8) - 32
    # The third bit is kept inverted: where it is clear, 4 is taken off.
    taken_off = (_bits(blocks[:, :32]) ^ 1) << 2
    levels = _pairs(blocks[:, 32:96], 32).to(torch.int8) - taken_off.to(torch.int8)
    return _grouped(_half(blocks[:, 108:110]) * scales.float(), levels.float())


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and least values, [blocks, 8] each, six bits apiece in 12 bytes."""
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat((first & 0x3F, (rest & 0x0F) | ((first >> 2) & 0x30)), dim=1)
    least = torch.cat((second & 0x3F, (rest >> 4) | ((second >> 2) & 0x30)), dim=1)
    return scales.float(), least.float()


def _q4_k(blocks: Tensor) -> Tensor:
    scales, least = _six_bits(blocks[:, 4:16])
    levels = _nibbles(blocks[:, 16:], 32).float()
    return _grouped(_half(blocks[:, :2]) * scales, levels, _half(blocks[:, 2:4]) * least)


def _q5_k(blocks: Tensor) -> Tensor:
    scales, least = _six_bits(blocks[:, 4:16])
    levels = (_nibbles(blocks[:, 48:], 32) | (_bits(blocks[:, 16:48]) << 4)).float()
    return _grouped(_half(blocks[:, :2]) * scales, levels, _half(blocks[:, 2:4]) * least)


def _q6_k(blocks: Tensor) -> Tensor:
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    low, high = _nibbles(blocks[:, :128], 64), _pairs(blocks[:, 128:192], 32)
    levels = (low | (high << 4)).to(torch.int8) - 32
    return _grouped(_half(blocks[:, 208:]) * scales, levels.float())


def _iq4(nibbles: Tensor) -> Tensor:
    return torch.tensor(IQ4_LEVELS, dtype=torch.float32)[nibbles.int()]


def _iq4_nl(blocks: Tensor) -> Tensor:
    return _half(blocks[:, :2]) * _iq4(_nibbles(blocks[:, 2:], 16))


def _iq4_xs(blocks: Tensor) -> Tensor:
    # Eight scales of six bits: high pairs in bytes 2 and 3, low halves in bytes 4 to 7.
    shifts = torch.tensor((0, 2, 4, 6), dtype=torch.uint8)
    high = ((blocks[:, 2:4].unsqueeze(-1) >> shifts) & 3).reshape(-1, 8)
    packed = blocks[:, 4:8]
    low = torch.stack((packed & 0x0F, packed >> 4), dim=-1).reshape(-1, 8)
    scales = (low | (high << 4)).to(torch.int8) - 32
    return _grouped(_half(blocks[:, :2]) * scales.float(), _iq4(_nibbles(blocks[:, 8:], 16)))


KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
}
"""By the names of `engine.models.gguf.tensor_types`."""

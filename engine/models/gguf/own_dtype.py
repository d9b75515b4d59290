"""The number format that a GGUF file is converted into if nothing is said."""

from __future__ import annotations

import math

from kakeya_fleet.engine.models.gguf.header import GgufHeader
from kakeya_fleet.engine.models.own_dtype import BFLOAT16, FLOAT32

WHOLE = ("F32", "F16")
"""Types whose numbers only float32 has."""


def gguf_dtype(header: GgufHeader) -> str:
    """float32 for a file that is mostly F32 or F16, bfloat16 for others.

    Of quantized blocks bfloat16 has each number within 1 in 512, far less than quantizing has
    cost, in half the memory: who takes four bits has no room for thirty-two.
    """
    counts = {True: 0, False: 0}
    for tensor in header.tensors.values():
        counts[tensor.kind.name in WHOLE] += math.prod(tensor.shape)
    return FLOAT32 if counts[True] > counts[False] else BFLOAT16

"""How fast this machine reads memory: the bound of decoding, which reads all weights a token."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch

from kakeya_fleet.engine.backends.torch_backend.packed_linear import can_pack

BUFFER_BYTES = 1 << 30
"""Many times any processor's cache."""
COLUMNS = 4096
_MKLDNN = torch.ops.mkldnn


@dataclass(slots=True)
class Bandwidth:
    """Bytes a second of each kernel, one figure a repeat."""

    readings: dict[str, list[float]] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """The best of all repeats of all kernels: what decoding cannot exceed."""
        return max(max(values) for values in self.readings.values())

    def summary(self) -> dict[str, object]:
        """For JSON."""
        return {
            "bound_bytes_per_second": self.bound,
            "bound_is": "the best repeat of the best kernel",
            "buffer_bytes": BUFFER_BYTES,
            "kernels": {
                name: {"best": max(values), "median": statistics.median(values)}
                for name, values in self.readings.items()
            },
        }


def measure(bandwidth: Bandwidth, dtype: torch.dtype, *, repeats: int = 3) -> None:
    """Adds `repeats` readings of every kernel, over a fresh buffer, at torch's thread count.

    `sum`, `maximum` and `dot` read and do almost nothing else. `product` is the
    packed product of two rows with a matrix in `dtype`, where this build and
    processor have one: as near as a library's kernel comes to the bound.
    """
    # Written, not zeros: untouched pages would all be one page, in the cache.
    buffer = torch.ones(BUFFER_BYTES // 4)
    kernels: dict[str, Callable[[], object]] = {
        "sum": buffer.sum,
        "maximum": buffer.max,
        "dot": partial(torch.dot, buffer, buffer),
    }
    for name, kernel in kernels.items():
        _read(bandwidth, name, kernel, repeats)
    matrix = torch.ones(BUFFER_BYTES // dtype.itemsize // COLUMNS, COLUMNS, dtype=dtype)
    del buffer, kernels, kernel
    if can_pack(dtype):
        packed = _MKLDNN._reorder_linear_weight(matrix, 2)  # noqa: SLF001 - it has no other name
        del matrix
        rows = torch.ones(2, COLUMNS, dtype=dtype)
        product = _MKLDNN._linear_pointwise.default  # noqa: SLF001
        name = f"product_{str(dtype).removeprefix('torch.')}"
        _read(bandwidth, name, lambda: product(rows, packed, None, "none", [], ""), repeats)


def _read(bandwidth: Bandwidth, name: str, kernel: Callable[[], object], repeats: int) -> None:
    readings = bandwidth.readings.setdefault(name, [])
    kernel()
    for _ in range(repeats):
        began = time.perf_counter()
        kernel()
        readings.append(BUFFER_BYTES / (time.perf_counter() - began))

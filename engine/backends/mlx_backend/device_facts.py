"""What is told of the device that computes on MLX."""

from __future__ import annotations

import mlx.core as mx

from kakeya_fleet.engine.backends.mlx_backend.dtypes import DTYPES
from kakeya_fleet.engine.contracts.device import CPU, DeviceFacts
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.weight_choice import WEIGHTS


def device_kind() -> str:
    """`cpu` or `metal`."""
    return CPU if mx.default_device() == mx.cpu else "metal"


def device_facts(_device: str) -> DeviceFacts:
    """Of MLX's default device. Metal shares the machine's memory, and so its bytes are those."""
    return DeviceFacts(
        kind=device_kind(),
        name="",
        memory_total_bytes=system_memory.total_bytes(),
        memory_free_bytes=system_memory.available_bytes(),
        dtypes=tuple(DTYPES),
        weights=WEIGHTS,
    )

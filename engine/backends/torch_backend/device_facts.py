"""What is told of the device that computes on torch."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.device import device_called
from kakeya_fleet.engine.backends.torch_backend.dtypes import DTYPES
from kakeya_fleet.engine.contracts.device import DeviceFacts
from kakeya_fleet.engine.models.weight_choice import AUTO, BF16, WEIGHTS


def device_facts(name: str) -> DeviceFacts:
    """Of the device that `device_called` gives, which says what is raised; its memory now."""
    device = device_called(name)
    # Whole numbers are multiplied by the compiled library, which is the processor's.
    whole = device.is_host and library() is not None
    return DeviceFacts(
        kind=device.kind,
        name=device.name,
        memory_total_bytes=device.memory_total_bytes,
        memory_free_bytes=device.available_bytes,
        dtypes=tuple(name for name, dtype in DTYPES.items() if device.computes(dtype)),
        weights=WEIGHTS if whole else (AUTO, BF16),
    )

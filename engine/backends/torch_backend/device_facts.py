"""What is told of the device that computes a verifier on torch."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.device import HOST
from kakeya_fleet.engine.backends.torch_backend.dtypes import DTYPES
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.device import DeviceFacts
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.weight_choice import AUTO, BF16, WEIGHTS


def device_facts(verifier: Verifier) -> DeviceFacts:
    """Of the device that `verifier`, one of this back end, was loaded to; its memory now."""
    device = verifier.device if isinstance(verifier, TorchVerifier) else HOST
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

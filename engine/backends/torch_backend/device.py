"""Where torch's tensors are, and what computes there.

One `Device` is chosen when a model is loaded, and given to whatever makes a tensor for it:
weights, slabs, masks, positions, a drafter's context. What crosses from it to the host is what
people and other nodes are told: logits once a forward, tapped hidden states, and what sessions
evict. Products in packed layouts and the compiled decoder are the processor's alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kakeya_fleet.engine.contracts.device import AUTO, CPU, CUDA, DEVICES, MPS
from kakeya_fleet.engine.errors import BadParameters, DeviceUnavailable, OutOfMemory
from kakeya_fleet.engine.memory import system_memory

FULL = "out of memory"
"""What the allocators of CUDA and MPS say, either by an error of its own."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where the tensors of a model are; `place` is torch's name of it."""

    place: torch.device

    @property
    def is_host(self) -> bool:
        """Whether the processor computes, in memory that NumPy shares."""
        return self.place.type == CPU

    @property
    def kind(self) -> str:
        """`cpu`, `cuda` or `mps`."""
        return self.place.type

    @property
    def name(self) -> str:
        """The driver's; empty for the processor."""
        if self.kind == CUDA:
            return str(torch.cuda.get_device_name(self.place))
        if self.kind == MPS:
            return str(torch.backends.mps.get_name())
        return ""

    @property
    def memory_total_bytes(self) -> int:
        """Bytes that this process may have there at most."""
        if self.kind == CUDA:
            return int(torch.cuda.mem_get_info(self.place)[1])
        if self.kind == MPS:
            return min(int(torch.mps.recommended_max_memory()), system_memory.total_bytes())
        return system_memory.total_bytes()

    @property
    def available_bytes(self) -> int:
        """Bytes that this process can take there now, those that torch keeps unused too."""
        if self.kind == CUDA:
            free, _ = torch.cuda.mem_get_info(self.place)
            kept = torch.cuda.memory_reserved(self.place) - torch.cuda.memory_allocated(self.place)
            return int(free + kept)
        if self.kind == MPS:
            left = self.memory_total_bytes - int(torch.mps.driver_allocated_memory())
            return max(0, min(left, system_memory.available_bytes()))
        return system_memory.available_bytes()

    def computes(self, dtype: torch.dtype) -> bool:
        """Whether it has products in `dtype` without going through another format."""
        if self.kind == CUDA and dtype == torch.bfloat16:
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        return True


HOST = Device(torch.device(CPU))
"""The processor."""


def device_called(name: str) -> Device:
    """The device of `DEVICES` that is called so; `auto` is the processor.

    Raises `DeviceUnavailable` for one that is not here, `BadParameters` for an unknown name.
    """
    if name not in DEVICES:
        raise BadParameters(f"no device {name!r}; there are: {', '.join(DEVICES)}")
    if name in (AUTO, CPU):
        return HOST
    fault = _cuda_fault() if name == CUDA else _mps_fault()
    if fault:
        raise DeviceUnavailable(f"{fault}: leave --device at {AUTO}", device=name)
    _prepare(name)
    # By its number: torch compares devices with it.
    return Device(torch.device(name, 0))


def require_computed(device: Device, dtype: torch.dtype, dtype_name: str) -> None:
    """Raises `DeviceUnavailable` for a number format that `device` has no products in."""
    if not device.computes(dtype):
        raise DeviceUnavailable(
            f"{device.name or device.kind} has no products in {dtype_name}: choose --dtype float32",
            device=device.kind,
        )


@contextmanager
def loading_on(device: Device) -> Iterator[None]:
    """Raises `OutOfMemory` where what is loaded meanwhile finds no room on `device`."""
    try:
        yield
    except RuntimeError as error:
        if FULL not in str(error):
            raise
        raise OutOfMemory(
            f"{device.name or device.kind} has no memory left for the model ({error}); end other"
            " programs that use it, or choose a smaller model",
            device=device.kind,
        ) from error


def _cuda_fault() -> str:
    """Why there is no CUDA; empty where there is."""
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        return f"this torch ({torch.__version__}) has no CUDA"
    if not torch.cuda.is_available():
        return "torch finds no device with CUDA: `nvidia-smi` says what the driver has"
    return ""


def _mps_fault() -> str:
    """Why there is no MPS; empty where there is."""
    if not torch.backends.mps.is_built():
        return f"this torch ({torch.__version__}) has no MPS"
    if not torch.backends.mps.is_available():
        return "torch finds no device with MPS"
    return ""


def _prepare(name: str) -> None:
    """Settings of torch that hold for all models of this process."""
    if name == CUDA:
        # Inputs as they are, sums in float32: fewer digits are faster, and another model.
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

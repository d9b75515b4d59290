"""What rounds on torch, besides shapes and threads."""

from __future__ import annotations

import platform

import torch

from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device


def torch_arithmetic(device: Device = HOST) -> str:
    """The library's version, and the device: of the processor the instructions that it uses."""
    if not device.is_host:
        runtime = f"{device.kind} {torch.version.cuda or platform.mac_ver()[0]}"
        return f"torch {torch.__version__} {runtime} {device.name}"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__} {platform.machine()} {capability}"

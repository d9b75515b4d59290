"""What rounds on torch, besides shapes and threads."""

from __future__ import annotations

import platform

import torch


def torch_arithmetic() -> str:
    """The library's version, and the processor's instructions that it uses."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__} {platform.machine()} {capability}"

"""What rounds, besides shapes and threads: by equal names equal numbers have equal bits."""

from __future__ import annotations

import platform

import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier


def torch_arithmetic() -> str:
    """The library's version, and the processor's instructions that it uses."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"torch {torch.__version__} {platform.machine()} {capability}"


def arithmetic(verifier: Verifier) -> str:
    """That of a verifier's forwards: torch's, and the compiled decoder's where it has one."""
    made = library() if isinstance(verifier, CompiledVerifier) else None
    return torch_arithmetic() if made is None else f"{torch_arithmetic()}, {made.path.stem}"

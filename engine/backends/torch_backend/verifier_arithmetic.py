"""What rounds the forwards of verifiers on torch."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.arithmetic import torch_arithmetic
from kakeya_fleet.engine.backends.torch_backend.compiled import library
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier


def verifier_arithmetic(verifier: Verifier) -> str:
    """Torch's, and the compiled decoder's where it has one."""
    if isinstance(verifier, TorchVerifier):
        return torch_arithmetic(verifier.device)
    if not isinstance(verifier, CompiledVerifier):
        return torch_arithmetic()
    # Its tables of rotations are torch's.
    return f"{torch_arithmetic()}, {library.arithmetic()}"

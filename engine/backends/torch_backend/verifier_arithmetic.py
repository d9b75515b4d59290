"""What rounds the forwards of verifiers on torch."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.arithmetic import torch_arithmetic
from kakeya_fleet.engine.backends.torch_backend.compiled import library
from kakeya_fleet.engine.backends.torch_backend.device import HOST
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier


def verifier_arithmetic(verifier: Verifier) -> str:
    """Torch's, and the compiled library's where there is one.

    It computes their context vectors whatever their decoder, of which a projection makes what the
    next queries see; the compiled decoder's tables of rotations are torch's.
    """
    device = verifier.device if isinstance(verifier, TorchVerifier) else HOST
    if library.library() is None:
        return torch_arithmetic(device)
    return f"{torch_arithmetic(device)}, {library.arithmetic()}"

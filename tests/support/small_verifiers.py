"""Small random verifiers by the name of what computes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import BACKENDS, installed_backends, load_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder

COMPILED = "compiled"
VERIFIERS = (*sorted(BACKENDS), COMPILED)
FITTING: dict[str, object] = {"head_dim": 32, "hidden_size": 64, "intermediate_size": 80}
"""What vectors of sixteen divide; the shapes of small models are not, else."""


def small_verifier(
    name: str, random_checkpoint: Callable[..., Path], architecture: str = "Qwen3ForCausalLM"
) -> Verifier:
    """One of `VERIFIERS`; skips the test where its libraries are not installed."""
    backend = "torch" if name == COMPILED else name
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    config = FITTING if name == COMPILED else {}
    folder = ModelFolder(random_checkpoint(architecture, **config), "random")
    verifier = load_verifier(folder, backend=backend)
    assert isinstance(verifier, CompiledVerifier) is (name == COMPILED)
    return verifier

"""Small random verifiers by the name of what computes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kakeya_fleet.engine.backends import BACKENDS, device_facts, installed_backends, load_verifier
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.contracts.device import CUDA, MPS
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers.exactness import settle
from tests.support.breadth import all_wide_but

COMPILED = "compiled"
VERIFIERS = (*sorted(BACKENDS), COMPILED)
DEVICES = (CUDA, MPS)
"""Torch's. What takes them is marked, and skipped where there is none: `make test-device`."""
ON_DEVICES = tuple(pytest.param(name, marks=pytest.mark.device) for name in DEVICES)
FITTING: dict[str, object] = {"head_dim": 32, "hidden_size": 64, "intermediate_size": 80}
"""What vectors of sixteen divide; the shapes of small models are not, else."""


def tried_on(*names: str) -> list[Any]:
    """Back ends and devices for a fixture's parameter, of which those are wide that are not named.

    That is: where what is tried is of the cache or the session, whatever computes.
    """
    return [*all_wide_but(names, VERIFIERS), *ON_DEVICES]


def small_verifier(
    name: str, random_checkpoint: Callable[..., Path], architecture: str = "Qwen3ForCausalLM"
) -> Verifier:
    """One of `VERIFIERS` or `DEVICES`; skips the test where its libraries or it are not there."""
    if name in DEVICES:
        require_device(name)
        folder = ModelFolder(random_checkpoint(architecture), "random")
        verifier = load_verifier(folder, backend="torch", device=name)
        # What a node does: the suites hold with the row counts that it serves with.
        assert settle(verifier).exact
        return verifier
    backend = "torch" if name == COMPILED else name
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    config = FITTING if name == COMPILED else {}
    folder = ModelFolder(random_checkpoint(architecture, **config), "random")
    verifier = load_verifier(folder, backend=backend)
    assert isinstance(verifier, CompiledVerifier) is (name == COMPILED)
    return verifier


def require_device(name: str) -> None:
    """Skips the test where torch has no such device."""
    try:
        device_facts(name)
    except ModelUnusable as missing:
        pytest.skip(str(missing))

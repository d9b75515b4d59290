"""Every implementation of the engine's contracts, and what the suites vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import BACKENDS, installed_backends, load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder

SPECS = {
    "contiguous": CacheSpec(CacheKind.CONTIGUOUS, capacity=600),
    "growing": CacheSpec(CacheKind.CONTIGUOUS, capacity=600, grows=True),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
    # 3 + 47 + 15 slots are one more than 64: a ring that is short by one rounds to 64.
    "one_over": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=47),
    "no_sink": CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=1),
}


@pytest.fixture(scope="session", params=sorted(BACKENDS))
def verifier(request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]) -> Verifier:
    """A small random model on each back end."""
    if request.param not in installed_backends():
        pytest.skip(f"the libraries of the back end {request.param} are not installed")
    folder = ModelFolder(random_checkpoint(), "random")
    return load_verifier(folder, backend=request.param)


@pytest.fixture(scope="session")
def specs() -> dict[str, CacheSpec]:
    """All ways to keep keys and values, by name."""
    return SPECS


@pytest.fixture(scope="session", params=sorted(SPECS))
def spec(request: pytest.FixtureRequest) -> CacheSpec:
    """Each way to keep keys and values."""
    return SPECS[request.param]

"""Every implementation of the engine's contracts, and what the suites vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from tests.support.small_verifiers import ON_DEVICES, VERIFIERS, small_verifier

HERE = Path(__file__).parent
SPECS = {
    "contiguous": CacheSpec(CacheKind.CONTIGUOUS, capacity=600),
    "growing": CacheSpec(CacheKind.CONTIGUOUS, capacity=600, grows=True),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
    # 3 + 47 + 15 slots are one more than 64: a ring that is short by one rounds to 64.
    "one_over": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=47),
    "packed": CacheSpec(CacheKind.PACKED, capacity=600, sink=64, window=20, codec="kvarn4"),
    "packed_growing": CacheSpec(
        CacheKind.PACKED, capacity=600, sink=0, window=64, codec="kvarn4v3", grows=True
    ),
    "no_sink": CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=1),
}


TRIED = {
    "mlx": ("growing", "one_over", "packed"),
    "torch": ("contiguous", "packed_growing", "sink_window"),
}
"""The caches with which `make test` tries these back ends, one of each kind. The compiled one,
which is fast, it tries with all."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A back end and a cache that each are tried with another are wide."""
    for item in items:
        if item.path.parent == HERE and isinstance(item, pytest.Function):
            params = item.callspec.params if hasattr(item, "callspec") else {}
            tried = TRIED.get(str(params.get("verifier")))
            spec = params.get("spec")
            if tried is not None and isinstance(spec, str) and spec not in tried:
                item.add_marker(pytest.mark.wide)


@pytest.fixture(scope="session", params=[*VERIFIERS, *ON_DEVICES])
def verifier(request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]) -> Verifier:
    """A small random model on each back end, and on each device."""
    return small_verifier(request.param, random_checkpoint)


@pytest.fixture(scope="session")
def specs() -> dict[str, CacheSpec]:
    """All ways to keep keys and values, by name."""
    return SPECS


@pytest.fixture(scope="session", params=sorted(SPECS))
def spec(request: pytest.FixtureRequest) -> CacheSpec:
    """Each way to keep keys and values."""
    return SPECS[request.param]

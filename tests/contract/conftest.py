"""Every implementation of the engine's contracts, and what the suites vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from tests.support.small_verifiers import ON_DEVICES, VERIFIERS, small_verifier

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

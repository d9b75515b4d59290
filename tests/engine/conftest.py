"""Loads the helper modules of this room, which tests cannot import by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    full_name = f"engine_room_{name}"
    if full_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            full_name, Path(__file__).with_name(f"{name}.py")
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full_name] = module
        spec.loader.exec_module(module)
    return sys.modules[full_name]


@pytest.fixture(scope="session")
def hashing() -> ModuleType:
    """A verifier without weights and the stream that it must produce."""
    return _load("hash_verifier")


@pytest.fixture(scope="session")
def sources() -> ModuleType:
    """Draft sources and runners."""
    return _load("draft_sources")


@pytest.fixture(scope="session")
def streams() -> ModuleType:
    """Running generations."""
    return _load("streams")

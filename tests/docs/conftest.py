from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def docs() -> Path:
    """The folder of the pages."""
    return ROOT / "docs"


@pytest.fixture(scope="session")
def contract_script() -> ModuleType:
    """The script that writes docs/contract.md."""
    sys.path.insert(0, str(ROOT))
    try:
        return import_module("scripts.write.contract_reference")
    finally:
        sys.path.remove(str(ROOT))

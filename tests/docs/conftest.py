from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from scripts.write import contract_reference

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def docs() -> Path:
    """The folder of the pages."""
    return ROOT / "docs"


@pytest.fixture(scope="session")
def contract_script() -> ModuleType:
    """The script that writes docs/contract.md."""
    return contract_reference

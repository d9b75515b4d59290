"""Of the process's settings, what a test of them leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture
def log_restored() -> Iterator[None]:
    """The log as it was for whoever runs next in this process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()

"""A scripted node for tests that block. Fixtures of conftest.py files are imported from here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.support.scripted_node import ScriptedNode


@pytest.fixture
def threaded_node() -> Iterator[ScriptedNode]:
    """A node on an event loop of its own thread, for tests that block."""
    loop = asyncio.new_event_loop()
    # Loops of one process wake for each other's gRPC events; one of them finds nothing.
    loop.set_exception_handler(lambda _loop, _context: None)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = ScriptedNode()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(10)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()

"""Scripted nodes for the tests of the client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeAlias

import pytest

from tests.support import scripted_node as scripted
from tests.support.scripted_answers import next_token
from tests.support.scripted_node import ScriptedNode

Pair: TypeAlias = tuple[ScriptedNode, ScriptedNode]


@pytest.fixture
async def node() -> AsyncIterator[ScriptedNode]:
    """A node on the test's own event loop."""
    made = scripted.ScriptedNode()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def other_node() -> AsyncIterator[ScriptedNode]:
    """A second node on the test's own event loop."""
    made = scripted.ScriptedNode()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def pair(node: ScriptedNode, other_node: ScriptedNode) -> Pair:
    """Two nodes of one fleet that serve the same weights."""
    other_node.name, other_node.node_id = "mini-2", "bb"
    scripted.join(node, other_node)
    return node, other_node


@pytest.fixture
def threaded_node() -> Iterator[ScriptedNode]:
    """A node on an event loop of its own thread, for tests that block."""
    loop = asyncio.new_event_loop()
    # Loops of one process wake for each other's gRPC events; one of them finds nothing.
    loop.set_exception_handler(lambda _loop, _context: None)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = scripted.ScriptedNode()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(10)
    yield made
    asyncio.run_coroutine_threadsafe(made.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def token_at() -> Callable[[int], int]:
    """The scripted model: position to id."""
    return next_token

"""Scripted nodes for the tests of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import pytest

from tests.support import scripted_node as scripted
from tests.support.scripted_answers import next_token
from tests.support.scripted_node import ScriptedNode
from tests.support.threaded_node import threaded_node

__all__ = ["threaded_node"]

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
def token_at() -> Callable[[int], int]:
    """The scripted model: position to id."""
    return next_token

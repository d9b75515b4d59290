"""Fixtures of the data plane's tests: real servers on loopback, a real model.

checkpoint   a random Qwen3 of two layers in the hub's format, with a tokenizer
nodes        starts data-plane nodes that know each other
liars        proposers that break the contract, each in its own way
runtime      one verifier node of the module with a stub, and calls on it
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from kakeya_fleet.node.roles.verifier import verifier_loading
from tests.support import calls, evicted_stores, range_nodes
from tests.support import checkpoint as random_model
from tests.support import neighbourhood as nodes
from tests.warm.settled import SettledOnce


@pytest.fixture(scope="session", autouse=True)
def _settled_once(settled: Path) -> Iterator[None]:
    """The nodes of this room, all of its own process, check a model's exactness once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verifier_loading, "settle", SettledOnce(settled))
        yield


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the hub's format: 96 ids, 4,096 positions, random weights."""
    return random_model.make(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture
def nodes_of_ranges() -> Iterator[object]:
    """Archives with a small chunk that share sessions; see `range_nodes.Nodes`."""
    nodes = range_nodes.Nodes(evicted_stores.small_shape(), evicted_stores)
    yield nodes
    nodes.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def neighbourhood() -> AsyncIterator[object]:
    """The module's nodes, closed after it."""
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier(neighbourhood: object, checkpoint: Path) -> object:
    """A node that serves the random model."""
    return await neighbourhood.start("verifier", f"verifier={checkpoint}")  # type: ignore[attr-defined]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proposer(neighbourhood: object) -> object:
    """A node that serves ngram alone."""
    return await neighbourhood.start("proposer", "proposer=ngram")  # type: ignore[attr-defined]


@pytest.fixture
def client(verifier: object) -> object:
    """Calls on the verifier node."""
    return calls.Caller(verifier.channel)  # type: ignore[attr-defined]

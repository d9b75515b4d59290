"""Fixtures of the rooms whose tests need nodes of roles: real servers on loopback, a real model.

checkpoint     a random Qwen3 of two layers in the hub's format, with a tokenizer
neighbourhood  starts nodes that know each other; the module's
verifier       one of them, which serves the random model
proposer       one of them, which serves ngram alone
client         calls on the verifier's node

A room's conftest.py imports them: pytest finds them there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import calls
from tests.support import checkpoint as random_model
from tests.support import neighbourhood as nodes

__all__ = ["checkpoint", "client", "neighbourhood", "proposer", "verifier"]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: 96 ids, 4,096 positions, random weights."""
    return random_model.make(tmp_path_factory.mktemp("models") / "random")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def neighbourhood() -> AsyncIterator[nodes.Neighbourhood]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def verifier(neighbourhood: nodes.Neighbourhood, checkpoint: Path) -> nodes.Node:
    return await neighbourhood.start("verifier", f"verifier={checkpoint}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proposer(neighbourhood: nodes.Neighbourhood) -> nodes.Node:
    return await neighbourhood.start("proposer", "proposer=ngram")


@pytest.fixture
def client(verifier: nodes.Node) -> calls.Caller:
    return calls.Caller(verifier.channel)

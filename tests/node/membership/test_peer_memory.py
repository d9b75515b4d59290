"""What a node remembers of its fleet while its disk is full."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.membership.identity import verifies
from kakeya_fleet.node.membership.peer_memory import PeerMemory
from tests.node.conftest import MakeCard, MakeIdentity

ADDRESS = "127.0.0.1:7101"


@pytest.fixture
def registry(make_card: MakeCard, make_identity: MakeIdentity) -> Registry:
    """One live peer."""
    registry = Registry(make_card(), verifies, now=0.0)
    peer = make_card(make_identity(), addresses=(ADDRESS,))
    assert registry.merge_cards((peer,), now=0.0, now_unix=1.7e9).merged
    return registry


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDirectory]:
    state = StateDirectory(tmp_path / "state")
    yield state
    state.close()


async def test_a_full_disk_is_said_once_and_tried_until_it_has_room(
    registry: Registry, state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = PeerMemory(state)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with capture_logs() as log:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            for _ in range(3):
                await memory.remember(registry)
        assert state.remembered_peers() == ()
        await memory.remember(registry)
    assert state.remembered_peers() == (ADDRESS,)
    told = [line for line in log if line["event"].startswith("peers_")]
    assert [line["event"] for line in told] == ["peers_not_kept", "peers_kept_again"]
    assert "No space left" in told[0]["cause"]

"""What a node remembers of its fleet while its disk is full."""

import os
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.membership.peer_memory import PeerMemory

ADDRESS = "127.0.0.1:7101"


class Registry:
    """One live peer."""

    own_id = "a"

    def records(self):
        card = SimpleNamespace(node_id="b", addresses=(ADDRESS,))
        return [SimpleNamespace(liveness=SimpleNamespace(is_tombstone=False), card=card)]


@pytest.fixture
def state(tmp_path):
    state = StateDirectory(tmp_path / "state")
    yield state
    state.close()


async def test_a_full_disk_is_said_once_and_tried_until_it_has_room(state, monkeypatch) -> None:
    memory = PeerMemory(state)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with capture_logs() as log:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            for _ in range(3):
                await memory.remember(Registry())
        assert state.remembered_peers() == ()
        await memory.remember(Registry())
    assert state.remembered_peers() == (ADDRESS,)
    assert [line["event"] for line in log] == ["peers_not_kept", "peers_kept_again"]
    assert "No space left" in log[0]["cause"]

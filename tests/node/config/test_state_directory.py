import fcntl
import json
import os
from pathlib import Path

import pytest

from kakeya_fleet.node.config.state_directory import StateDirectory, default_state, write_durable
from kakeya_fleet.node.errors import IncarnationCorrupt, StateExposed, StateLocked, StateUnwritable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_default_is_below_the_users_state_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state("mini-1") == tmp_path / "kakeya" / "mini-1"


def test_two_agents_never_share_one_state(path: Path) -> None:
    first = StateDirectory(path)
    with pytest.raises(StateLocked, match=str(os.getpid())) as caught:
        StateDirectory(path)
    assert caught.value.metadata["pid"] == str(os.getpid())
    first.close()
    StateDirectory(path).close()


def test_a_dead_agents_lock_does_not_hold(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "lock").write_text("1\n")
    StateDirectory(path).close()


def test_incarnation_rises_over_restarts_and_above_what_was_heard(path: Path) -> None:
    state = StateDirectory(path)
    assert state.raise_incarnation() == 1
    assert state.raise_incarnation(above=41) == 42
    state.close()
    again = StateDirectory(path)
    assert again.raise_incarnation() == 43
    again.close()


@pytest.mark.parametrize("damage", [b"", b"44\n", b"garbage\n44\n", b"\xff\xfe"])
def test_a_damaged_incarnation_is_refused_with_the_repair(path: Path, damage: bytes) -> None:
    state = StateDirectory(path)
    state.raise_incarnation()
    (path / "incarnation").write_bytes(damage)
    with pytest.raises(IncarnationCorrupt, match=f"rm {path}/incarnation"):
        state.raise_incarnation()
    assert (path / "incarnation").read_bytes() == damage
    state.close()


def test_an_incarnation_that_cannot_be_made_durable_is_refused_by_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateDirectory(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateUnwritable, match=r"incarnation.*No space left") as caught:
        state.raise_incarnation()
    assert caught.value.reason == "STATE_UNWRITABLE"
    state.close()


def test_a_write_that_fails_leaves_the_old_content(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.mkdir(mode=0o700)
    target = path / "file"
    write_durable(target, b"old")
    monkeypatch.setattr(os, "fsync", _fails)
    with pytest.raises(StateUnwritable):
        write_durable(target, b"new")
    assert target.read_bytes() == b"old"
    assert [each.name for each in path.iterdir()] == ["file"], "a leftover takes room"


def _fails(descriptor: int) -> None:
    raise OSError(5, "Input/output error")


def test_peers_come_back_and_damage_is_told_from_absence(path: Path) -> None:
    state = StateDirectory(path)
    assert state.remembered_peers() == ()
    state.remember_peers(("127.0.0.1:7100", "127.0.0.1:7101"))
    assert state.remembered_peers() == ("127.0.0.1:7100", "127.0.0.1:7101")
    whole = (path / "peers").read_bytes()
    (path / "peers").write_bytes(whole[:-5])
    assert state.remembered_peers() is None
    state.close()


def test_remembered_peers_are_bounded(path: Path) -> None:
    state = StateDirectory(path)
    state.remember_peers(tuple(f"10.0.0.1:{port}" for port in range(1, 1001)))
    kept = state.remembered_peers()
    assert kept is not None
    assert len(kept) == 256
    state.close()


@pytest.mark.parametrize(("content", "port"), [("7100\n", 7100), ("0", 0), ("99999", 0), ("x", 0)])
def test_last_port(path: Path, content: str, port: int) -> None:
    state = StateDirectory(path)
    assert state.last_port() == 0
    (path / "port").write_text(content)
    assert state.last_port() == port
    state.close()


def test_directory_and_files_are_the_owners_alone(path: Path) -> None:
    state = StateDirectory(path)
    state.raise_incarnation()
    assert path.stat().st_mode & 0o777 == 0o700
    assert all(each.stat().st_mode & 0o077 == 0 for each in path.iterdir())
    state.close()


def test_a_directory_that_others_can_read_is_refused(path: Path) -> None:
    path.mkdir(mode=0o700)
    (path / "something").write_text("")
    path.chmod(0o755)
    with pytest.raises(StateExposed, match="chmod 700"):
        StateDirectory(path)


def test_an_empty_directory_is_tightened(path: Path) -> None:
    path.mkdir(mode=0o755)
    StateDirectory(path).close()
    assert path.stat().st_mode & 0o777 == 0o700


def test_agent_file_is_there_while_it_runs(path: Path) -> None:
    state = StateDirectory(path)
    state.announce({"address": "127.0.0.1:7100", "pid": 1})
    assert json.loads((path / "agent.json").read_text())["address"] == "127.0.0.1:7100"
    state.close()
    assert not (path / "agent.json").exists()


def test_lock_is_a_real_file_lock(path: Path) -> None:
    state = StateDirectory(path)
    with (path / "lock").open() as stream, pytest.raises(BlockingIOError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    state.close()


def test_a_disk_that_takes_no_lock_is_told_with_its_mend(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StateUnwritable, match=r"lock cannot be written.*No space left.*--state"):
        StateDirectory(path)

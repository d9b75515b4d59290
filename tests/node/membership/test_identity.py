import hashlib
from pathlib import Path

import pytest

from kakeya_fleet.node.errors import IdentityCorrupt, StateExposed
from kakeya_fleet.node.membership.identity import load_or_create, verifies


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "identity.key"


def test_identity_is_made_once_and_found_again(path: Path) -> None:
    first = load_or_create(path)
    assert load_or_create(path).node_id == first.node_id
    assert first.node_id == hashlib.sha256(first.public_key).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["identity.key"]


def test_signature_binds_message_and_key(path: Path, tmp_path: Path) -> None:
    identity = load_or_create(path)
    other = load_or_create(tmp_path / "other.key")
    signature = identity.sign(b"message")
    assert verifies(identity.public_key, b"message", signature)
    assert not verifies(identity.public_key, b"massage", signature)
    assert not verifies(other.public_key, b"message", signature)
    assert not verifies(b"short", b"message", signature)
    assert other.node_id != identity.node_id


def test_damage_at_any_line_is_refused_and_the_file_is_kept(path: Path) -> None:
    load_or_create(path)
    whole = path.read_text()
    name, seed, node_id = whole.splitlines()
    flipped = ("0" if seed[0] != "0" else "1") + seed[1:]
    for damaged in (
        "",
        whole[:-20],
        f"{name}\n{flipped}\n{node_id}\n",
        f"other-format\n{seed}\n{node_id}\n",
        f"{name}\nnot hex\n{node_id}\n",
        "\x00" * 120,
    ):
        path.write_text(damaged)
        with pytest.raises(IdentityCorrupt, match=f"rm {path}") as caught:
            load_or_create(path)
        assert caught.value.reason == "IDENTITY_CORRUPT"
        assert path.read_text() == damaged


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644])
def test_a_key_that_others_can_read_is_refused(path: Path, mode: int) -> None:
    load_or_create(path)
    path.chmod(mode)
    with pytest.raises(StateExposed, match="chmod 600"):
        load_or_create(path)


def test_a_key_left_behind_by_a_crash_is_replaced_whole(path: Path) -> None:
    path.with_name(".identity.key.new").write_text("half")
    assert load_or_create(path).node_id == load_or_create(path).node_id

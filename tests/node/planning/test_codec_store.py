"""What is kept of measured codecs: across restarts, bounded, and never a reason to fail."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kakeya_fleet.fleet.placement.codec_choice import Standing
from kakeya_fleet.fleet.placement.codec_ladder import Divergence, PackedQuality
from kakeya_fleet.node.config.state_directory import CODECS_FILE
from kakeya_fleet.node.planning.codec_store import (
    MOST_MODELS,
    CodecStore,
    Measured,
    ModelKey,
    Stood,
)

MODEL, OTHER = ModelKey("ab" * 32, "torch bfloat16"), ModelKey("cd" * 32, "torch bfloat16")


def measured(model: ModelKey = MODEL, codec: str = "kvarn4", at: float = 5.0) -> Measured:
    return Measured(model, codec, Divergence(96, 0.0021, 0.0004), at)


STOOD = Stood(MODEL, PackedQuality.HIGH, Standing("int8", is_raised=True))


class Kept:
    """A store, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / CODECS_FILE
        self.told: list[str] = []

    def store(self) -> CodecStore:
        """As a node opens it that was started anew."""
        return CodecStore(self.path, self.told.append)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_what_was_kept_is_there_after_a_restart(kept: Kept) -> None:
    assert kept.store().load() == ([], [])
    kept.store().keep([measured(), measured(OTHER)], [STOOD])
    assert kept.store().load() == ([measured(), measured(OTHER)], [STOOD])
    newer = Measured(MODEL, "kvarn4", Divergence(32, 0.5, 0.1), 6.0)
    kept.store().keep([newer], [Stood(MODEL, PackedQuality.HIGH, Standing("kvarn4"))])
    rows, standings = kept.store().load()
    assert sorted(rows, key=lambda each: each.at) == [measured(OTHER), newer]
    assert standings == [Stood(MODEL, PackedQuality.HIGH, Standing("kvarn4"))]
    assert not kept.told


def test_nobody_else_reads_it(kept: Kept) -> None:
    store = kept.store()
    store.keep([measured()], [])
    with closing(sqlite3.connect(kept.path)) as reader:
        reader.execute("SELECT * FROM measured").fetchall()
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        for path in kept.path.parent.iterdir():
            assert path.stat().st_mode & 0o777 == 0o600, path


def test_a_model_is_forgotten_or_all(kept: Kept) -> None:
    store = kept.store()
    store.keep([measured(), measured(OTHER)], [STOOD])
    store.forget(MODEL.weights_digest)
    assert store.load() == ([measured(OTHER)], [])
    store.forget()
    assert store.load() == ([], [])


def test_the_models_measured_longest_ago_go(kept: Kept) -> None:
    store = kept.store()
    rows = [
        measured(ModelKey(f"{number:064x}", "torch bfloat16"), at=float(number))
        for number in range(MOST_MODELS + 3)
    ]
    store.keep(rows, [Stood(rows[0].model, PackedQuality.HIGH, Standing("kvarn4"))])
    found, standings = store.load()
    assert sorted(each.at for each in found) == [float(i) for i in range(3, MOST_MODELS + 3)]
    assert standings == []


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE measured (words TEXT)")


@pytest.mark.parametrize("damage", ["noise", "cut", "foreign"])
def test_a_file_that_is_none_is_moved_aside(kept: Kept, damage: str) -> None:
    match damage:
        case "noise":
            kept.path.write_bytes(b"no file of SQLite at all " * 400)
        case "cut":
            kept.store().keep([measured()], [STOOD])
            whole = kept.path.read_bytes()
            kept.path.write_bytes(whole[:4096] + b"\xff" * 8192)
        case _:
            _foreign(kept.path)
    before = kept.path.read_bytes()
    assert kept.store().load() == ([], [])
    (told,) = kept.told
    assert f"moved to {CODECS_FILE}.aside" in told
    assert kept.path.with_name(f"{CODECS_FILE}.aside").read_bytes() == before
    kept.store().keep([measured()], [STOOD])
    assert kept.store().load() == ([measured()], [STOOD])
    assert len(kept.told) == 1


def test_rows_that_cannot_be_are_left_out(kept: Kept) -> None:
    kept.store().keep([measured()], [STOOD])
    with closing(sqlite3.connect(kept.path)) as connection, connection:
        connection.execute(
            "INSERT INTO measured VALUES ('a', 'b', 'kvarn4', -1, 0.0, 0.0, 0.0),"
            " ('a', 'b', 'kvarn3', 5, 9e999, 0.0, 0.0), ('a', 'b', 'int8', 5, 'x', 0.0, 0.0),"
            " ('a', 'b', 'unknown', 5, 0.0, 0.0, 0.0)"
        )
        connection.execute(
            "INSERT INTO standings VALUES ('a', 'b', 'best', 'int8', 0),"
            " ('a', 'b', 'high', 'none', 0)"
        )
    assert kept.store().load() == ([measured()], [STOOD])


def test_a_disk_that_refuses_is_told_once_and_nothing_fails(tmp_path: Path) -> None:
    told: list[str] = []
    store = CodecStore(tmp_path / "not there" / CODECS_FILE, told.append)
    assert store.load() == ([], [])
    store.keep([measured()], [STOOD])
    store.forget()
    assert len(told) == 1
    assert "lost when the node ends" in told[0]

"""What this node measured of codecs, in a file of SQLite: numbers and digests alone.

The state directory is one agent's at a time (`node.config.state_directory`), so nobody else writes
to the file. One that is damaged or is none of these is moved aside, and the node begins anew.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from kakeya_fleet.fleet.placement.codec_choice import Standing
from kakeya_fleet.fleet.placement.codec_ladder import LADDER, Divergence, PackedQuality

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = structlog.get_logger(__name__)

APPLICATION = 0x4B4B4344
"""SQLite's application id of such a file: "KKCD"."""
VERSION = 1
MOST_MODELS = 256
"""Models that are kept, the latest measured; with 4 codecs and 2 qualities each."""
_COMPANIONS = ("", "-wal", "-shm")
"""A file of SQLite in WAL mode has two beside it."""
_SCHEMA = """
CREATE TABLE measured (
    weights TEXT NOT NULL, arithmetic TEXT NOT NULL, codec TEXT NOT NULL,
    positions INTEGER NOT NULL, mean REAL NOT NULL, squares REAL NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (weights, arithmetic, codec));
CREATE TABLE standings (
    weights TEXT NOT NULL, arithmetic TEXT NOT NULL, quality TEXT NOT NULL,
    codec TEXT NOT NULL, is_raised INTEGER NOT NULL,
    PRIMARY KEY (weights, arithmetic, quality));
"""


@dataclass(frozen=True, slots=True)
class ModelKey:
    """What is measured apart: a model by the digest of its weights, and how it is computed."""

    weights_digest: str
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known of one codec of a model, and when it was last measured, seconds since 1970."""

    model: ModelKey
    codec: str
    divergence: Divergence
    at: float


@dataclass(frozen=True, slots=True)
class Stood:
    """The codec that a quality had for a model."""

    model: ModelKey
    quality: PackedQuality
    standing: Standing


class CodecStore:
    """Keeps rows in `path`. Any thread may call; calls write to a disk, for milliseconds.

    Where the disk refuses, that is logged, and the node goes on by what it has in memory.
    """

    def __init__(self, path: Path, on_fault: Callable[[str], None]) -> None:
        """`on_fault` hears of a file that was moved aside, and of a disk that refuses."""
        self._path = path
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self._refused = False

    def load(self) -> tuple[list[Measured], list[Stood]]:
        """All that is kept; rows that cannot be are left out. Nothing from a file moved aside."""
        if not self._path.exists():
            # It is made when there is something to keep.
            return [], []
        with self._lock:
            try:
                with self._opened() as connection:
                    return _rows(connection)
            except sqlite3.OperationalError as error:
                # A disk that is full or not to be written says nothing against the file.
                self._refuse(error)
            except sqlite3.DatabaseError as error:
                self._move_aside(str(error))
            except OSError as error:
                self._refuse(error)
            return [], []

    def keep(self, measured: Iterable[Measured], standings: Iterable[Stood]) -> None:
        """Puts these in the place of what there was of the same."""

        def put(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?, ?, ?)",
                [_measured_row(each) for each in measured],
            )
            connection.executemany(
                "INSERT OR REPLACE INTO standings VALUES (?, ?, ?, ?, ?)",
                [_stood_row(each) for each in standings],
            )
            _bound(connection)

        self._change(put)

    def forget(self, weights_digest: str = "") -> None:
        """Deletes what there is of a model, however it is computed; of all without a digest."""

        def delete(connection: sqlite3.Connection) -> None:
            for table in ("measured", "standings"):
                connection.execute(
                    f"DELETE FROM {table} WHERE ?1 IN ('', weights)", (weights_digest,)
                )

        self._change(delete)

    def _change(self, make: Callable[[sqlite3.Connection], None]) -> None:
        """All of it or nothing; a file that cannot be written is told."""
        with self._lock:
            try:
                with self._opened() as connection, connection:
                    make(connection)
            except (sqlite3.Error, OSError) as error:
                self._refuse(error)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        # Before SQLite makes it for others to read, too; those beside it get its mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(self._path, timeout=1.0)) as connection:
            _prepare(connection)
            yield connection

    def _move_aside(self, why: str) -> None:
        aside = self._path.with_name(f"{self._path.name}.aside")
        try:
            self._path.replace(aside)
            for companion in _COMPANIONS[1:]:
                self._path.with_name(f"{self._path.name}{companion}").unlink(missing_ok=True)
        except OSError as error:
            self._refuse(error)
            return
        self._on_fault(
            f"What was measured of codecs could not be read ({why}): {self._path.name} was moved"
            f" to {aside.name}, and is measured anew."
        )

    def _refuse(self, error: Exception) -> None:
        _log.warning("codecs_not_kept", path=str(self._path), error=str(error))
        if not self._refused:
            self._refused = True
            self._on_fault(
                f"What is measured of codecs cannot be kept in {self._path} ({error}): it is lost"
                " when the node ends."
            )


def _prepare(connection: sqlite3.Connection) -> None:
    """Makes the tables of a new file. Raises `sqlite3.DatabaseError` for another's file."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if (application, version) != (APPLICATION, VERSION):
            raise sqlite3.DatabaseError("it is another program's, or another version's")
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN; {_SCHEMA} PRAGMA application_id = {APPLICATION};"
        f" PRAGMA user_version = {VERSION}; COMMIT;"
    )


def _bound(connection: sqlite3.Connection) -> None:
    """Deletes the models that were measured longest ago, above `MOST_MODELS`."""
    gone = connection.execute(
        "SELECT weights, arithmetic FROM measured GROUP BY weights, arithmetic"
        " ORDER BY max(at) DESC LIMIT -1 OFFSET ?",
        (MOST_MODELS,),
    ).fetchall()
    for table in ("measured", "standings"):
        connection.executemany(
            f"DELETE FROM {table} WHERE weights = ? AND arithmetic = ?",
            gone,
        )


def _rows(connection: sqlite3.Connection) -> tuple[list[Measured], list[Stood]]:
    measured = [
        Measured(ModelKey(weights, arithmetic), codec, Divergence(count, mean, squares), at)
        for weights, arithmetic, codec, count, mean, squares, at in connection.execute(
            "SELECT weights, arithmetic, codec, positions, mean, squares, at FROM measured"
        )
        if codec in LADDER and _can_be(count, mean, squares, at)
    ]
    standings = [
        Stood(
            ModelKey(weights, arithmetic), PackedQuality(quality), Standing(codec, bool(is_raised))
        )
        for weights, arithmetic, quality, codec, is_raised in connection.execute(
            "SELECT weights, arithmetic, quality, codec, is_raised FROM standings"
        )
        if codec in LADDER and quality in set(PackedQuality)
    ]
    return measured, standings


def _can_be(count: object, *numbers: object) -> bool:
    """Whether they are a number of positions and finite numbers, none below 0."""
    return (
        isinstance(count, int)
        and count >= 0
        and all(isinstance(each, float) and math.isfinite(each) and each >= 0 for each in numbers)
    )


def _measured_row(each: Measured) -> tuple[str | int | float, ...]:
    found, model = each.divergence, each.model
    return (
        *(model.weights_digest, model.arithmetic, each.codec),
        *(found.count, found.mean, found.squares, each.at),
    )


def _stood_row(each: Stood) -> tuple[str | int, ...]:
    model, standing = each.model, each.standing
    return (
        *(model.weights_digest, model.arithmetic, each.quality.value),
        *(standing.codec, int(standing.is_raised)),
    )

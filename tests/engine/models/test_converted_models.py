"""A conversion is made once, by one, whole or not at all."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from kakeya_fleet.engine.errors import ModelCacheUnwritable
from kakeya_fleet.engine.models.converted_models import clear, converted, kept_models

WEIGHTS = "model.safetensors"
SIZE = 1000


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kakeya" / "models"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"first")
    return path


def write(folder: Path) -> None:
    assert not list(folder.iterdir())
    (folder / WEIGHTS).write_bytes(b"\1" * SIZE)


def make(
    source: Path, how: Callable[[Path], None] = write, dtype: str = "float32", needed: int = SIZE
) -> Path:
    return converted(source, "model", dtype, needed_bytes=needed, weights=WEIGHTS, make=how)


def never(folder: Path) -> None:
    pytest.fail(f"made again in {folder}")


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != "locks")


def test_what_was_made_is_found_again(source: Path) -> None:
    folder = make(source)
    assert make(source, never) == folder
    # Another path to the same bytes.
    twin = source.with_name("twin.gguf")
    shutil.copy(source, twin)
    assert make(twin, never) == folder
    (kept,) = kept_models()
    assert (kept.model.name, kept.model.dtype, kept.model.source) == (
        "model",
        "float32",
        str(source),
    )
    assert kept.byte_count > SIZE


def test_another_file_and_another_dtype_are_made_anew(source: Path) -> None:
    first = make(source)
    other_dtype = make(source, dtype="bfloat16")
    source.write_bytes(b"other")
    assert len({first, other_dtype, make(source)}) == 3


def test_of_two_at_once_one_makes_it(source: Path) -> None:
    began, may_end = Event(), Event()
    makers: list[Path] = []
    found: list[Path] = []

    def slowly(folder: Path) -> None:
        makers.append(folder)
        began.set()
        assert may_end.wait(30)
        write(folder)

    first = Thread(target=lambda: found.append(make(source, slowly)))
    first.start()
    assert began.wait(30)
    second = Thread(target=lambda: found.append(make(source, slowly)))
    second.start()
    may_end.set()
    first.join(30)
    second.join(30)
    assert len(makers) == 1
    assert found[0] == found[1]


def test_one_that_fails_leaves_nothing(source: Path, cache: Path) -> None:
    def fails(folder: Path) -> None:
        write(folder)
        raise RuntimeError("in the middle of it")

    with pytest.raises(RuntimeError, match="in the middle"):
        make(source, fails)
    assert left(cache) == []
    assert make(source).is_dir()


def test_what_another_left_half_made_is_not_found(source: Path, cache: Path) -> None:
    folder = make(source)
    part = folder.with_name(f"{folder.name}.part")
    folder.rename(part)
    assert kept_models() == []
    assert make(source) == folder
    assert left(cache) == [folder.name]


def test_weights_that_lost_bytes_are_made_anew(source: Path) -> None:
    folder = make(source)
    (folder / WEIGHTS).write_bytes(b"\1" * (SIZE - 1))
    assert kept_models() == []
    assert make(source) == folder
    assert (folder / WEIGHTS).stat().st_size == SIZE


@contextmanager
def largest_file(byte_count: int) -> Iterator[None]:
    """The system refuses to write more to a file, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_is_named_and_left_as_it_was(source: Path, cache: Path) -> None:
    def large(folder: Path) -> None:
        (folder / WEIGHTS).write_bytes(bytes(1 << 20))

    with largest_file(1 << 16), pytest.raises(ModelCacheUnwritable, match="fleet models clear"):
        make(source, large)
    assert left(cache) == []


def test_a_disk_without_room_is_named_before_a_byte_is_written(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(ModelCacheUnwritable, match="has 1,048,576 free") as refused:
        make(source, never, needed=1 << 30)
    assert refused.value.metadata["needed_bytes"] == str(1 << 30)
    assert left(cache) == []


def test_what_is_cleared_is_gone(source: Path, cache: Path) -> None:
    make(source)
    make(source, dtype="bfloat16")
    first, second = kept_models()
    assert clear(first)
    assert kept_models() == [second]
    # Somebody else was faster.
    assert clear(first)


def test_one_that_is_being_made_is_not_cleared(source: Path) -> None:
    make(source)
    (kept,) = kept_models()
    began, may_end = Event(), Event()

    def slowly(folder: Path) -> None:
        began.set()
        assert may_end.wait(30)
        write(folder)

    (kept.folder / WEIGHTS).unlink()
    thread = Thread(target=lambda: make(source, slowly))
    thread.start()
    assert began.wait(30)
    try:
        assert not clear(kept)
    finally:
        may_end.set()
        thread.join(30)
    assert kept_models()

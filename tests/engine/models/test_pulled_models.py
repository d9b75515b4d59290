"""A model that comes from elsewhere is found when it is whole, and goes on where it was left."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kakeya_fleet.engine.errors import ModelCacheUnwritable, ModelInUse, ModelNotKept
from kakeya_fleet.engine.models import pulled_models
from kakeya_fleet.engine.models.gguf.source import find_gguf, gguf_here, names_gguf
from kakeya_fleet.engine.models.model_files import is_here, place_of
from kakeya_fleet.engine.models.model_folder import folder_here, model_id_of
from kakeya_fleet.engine.models.pulled_models import (
    PulledPart,
    StoredModel,
    remove,
    stored,
    stored_models,
    stored_place,
)
from tests.support.model_sources import PIECE_BYTES, model_of

FILES = {
    "config.json": b"{}",
    "model.safetensors": os.urandom(2 * PIECE_BYTES + 7),
    "restorer/config.json": b"{1}",
}
NAME = "organisation/small"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "kakeya" / "pulled"


class BrokenOff(Exception):
    """A pull came to no end."""


def bring(files: dict[str, bytes] | None = None, name: str = NAME, most: int = 99) -> StoredModel:
    """The first `most` pieces that are missing; what is there then, or raises `BrokenOff`."""
    files = files or FILES
    part = PulledPart(model_of(files, name))
    try:
        part.open()
        there = {piece.number for piece in part.written()}
        missing = [each for each in part.manifest.pieces() if each.number not in there]
        for piece in missing[:most]:
            data = files[piece.file][piece.offset : piece.offset + piece.byte_count]
            assert part.write(piece, data)
        if len(missing) > most:
            raise BrokenOff
        return part.finish({"mini-2", "mini-1"})
    finally:
        part.close()


def left(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if path.name != "locks")


def test_what_came_whole_is_found_by_its_name_and_has_every_byte(store: Path) -> None:
    assert (stored(NAME), stored_place(NAME), is_here(NAME)) == (None, None, False)
    model = bring()
    assert (model.is_whole, model.sources) == (True, ("mini-1", "mini-2"))
    place = stored_place(NAME)
    assert place == model.files == place_of(NAME)
    assert is_here(NAME)
    assert {name: (model.files / name).read_bytes() for name in FILES} == FILES
    found = folder_here(NAME)
    assert found is not None
    assert (found.path, found.model_id, model_id_of(NAME)) == (place, NAME, NAME)
    assert stored(NAME) == model
    assert stored_models() == [model]
    assert len(left(store)) == 1


def test_a_gguf_file_is_one_by_any_name(tmp_path: Path) -> None:
    for name in ("mistral", "organisation/name:file.gguf"):
        bring({"model.gguf": b"GGUF" * 9}, name)
        assert names_gguf(name)
        assert find_gguf(name).path == gguf_here(name).path == stored_place(name)
        assert find_gguf(name).path.name == "model.gguf"
        assert (find_gguf(name).model_id, model_id_of(name)) == (name, name)
    # What lies in the folder of whoever asks is meant before it.
    (tmp_path / "mistral").mkdir()
    assert not names_gguf("mistral")


def test_a_part_is_never_found_and_goes_on_with_its_right_pieces(store: Path) -> None:
    with pytest.raises(BrokenOff):
        bring(most=3)
    assert (stored(NAME), stored_place(NAME)) == (None, None)
    (part,) = stored_models()
    assert (part.is_whole, part.byte_count) == (False, 2 + 2 * PIECE_BYTES)
    weights = part.files / "model.safetensors"
    with weights.open("r+b") as file:
        file.seek(PIECE_BYTES + 1)
        file.write(b"rot")
    again = PulledPart(part.manifest)
    again.open()
    assert [piece.number for piece in again.written()] == [0, 1]
    again.close()
    assert {name: (bring().files / name).read_bytes() for name in FILES} == FILES
    assert not any(name.endswith(".part") for name in left(store))


def test_wrong_bytes_are_not_written_and_others_files_begin_anew() -> None:
    with pytest.raises(BrokenOff):
        bring(most=2)
    part = PulledPart(stored_models()[0].manifest)
    part.open()
    piece = list(part.manifest.pieces())[2]
    for wrong in (bytes(piece.byte_count), FILES["model.safetensors"][:7], b""):
        assert not part.write(piece, wrong)
    assert len(list(part.written())) == 2
    part.close()
    other = FILES | {"config.json": b"[]"}
    assert bring(other).manifest.digest == model_of(other).digest


def test_nobody_brings_or_removes_what_is_being_brought() -> None:
    part = PulledPart(model_of(FILES, NAME))
    part.open()
    for other in (PulledPart(model_of(FILES, NAME)).open, lambda: remove(NAME)):
        with pytest.raises(ModelInUse, match="at this moment"):
            other()
    part.close()
    bring()


def test_what_has_no_room_is_refused_before_a_byte_is_written(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(ModelCacheUnwritable, match=r"131,0.. bytes .* 1,048,576 free") as caught:
        bring()
    assert caught.value.metadata["free_bytes"] == str(1 << 20)
    assert left(store) == []


def test_a_disk_that_fills_up_is_told_and_what_came_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = PulledPart(model_of(FILES, NAME))
    part.open()
    first, second, *_ = part.manifest.pieces()
    assert part.write(first, FILES["config.json"])
    opened = Path.open

    def full(path: Path, mode: str = "r", **options: object) -> object:
        if "+" in mode:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(ModelCacheUnwritable, match="the disk is full"):
        part.write(second, FILES["model.safetensors"][:PIECE_BYTES])
    assert [piece.number for piece in part.written()] == [0]
    part.close()


def test_only_what_was_pulled_is_removed(store: Path, tmp_path: Path) -> None:
    own = tmp_path / "organisation" / "small"
    own.mkdir(parents=True)
    (own / "config.json").write_text("{}")
    with pytest.raises(ModelNotKept, match="pulled: none"):
        remove(NAME)
    bring()
    with pytest.raises(ModelNotKept, match=f"pulled: {NAME}"):
        remove("tiny")
    assert remove(NAME) == sum(map(len, FILES.values()))
    assert (stored(NAME), left(store)) == (None, [])
    assert (own / "config.json").is_file()
    with pytest.raises(BrokenOff):
        bring(most=1)
    assert remove(NAME) > 0
    assert stored_models() == []


@pytest.mark.parametrize("name", ["../../etc", "/", ".", "..", "a/../../b", "\0", "é" * 400])
def test_no_name_leads_out_of_the_store(store: Path, name: str) -> None:
    assert bring(name=name).folder.parent == store
    assert stored_place(name) is not None


def test_what_is_no_record_is_no_model(store: Path) -> None:
    model = bring()
    record = model.folder / pulled_models.RECORD
    for text in ("", "{}", '{"files": [["../x.json", 1]]}'):
        record.write_text(text)
        assert stored(NAME) is None
        assert stored_models() == []

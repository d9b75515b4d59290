"""What another machine says of a model's files is refused unless a model could have them."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.engine.models.model_files import travelling_files
from kakeya_fleet.engine.models.model_manifest import (
    LEAST_PIECE_BYTES,
    MOST_BYTES,
    MOST_FILES,
    PIECE_BYTES,
    BadManifest,
    Manifest,
    ModelFile,
    check_files,
    piece_count,
)

CONFIG, WEIGHTS = ModelFile("config.json", 10), ModelFile("model.safetensors", 1 << 40)


def named(name: str, byte_count: int = 1) -> tuple[ModelFile, ...]:
    return (CONFIG, WEIGHTS, ModelFile(name, byte_count))


@pytest.mark.parametrize(
    "files",
    [
        (CONFIG, WEIGHTS),
        (CONFIG, ModelFile("model.safetensors.index.json", 9), ModelFile("a-1.safetensors", 1)),
        (ModelFile("model.gguf", 1 << 33),),
        named("restorer/model.safetensors"),
        named("chat_template.jinja"),
        named("tokenizer.model"),
        named("merges.txt"),
    ],
)
def test_files_of_models_are_taken(files: tuple[ModelFile, ...]) -> None:
    check_files(files, PIECE_BYTES)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "0 files"),
        (named("../model.json"), "no file of a model's folder"),
        (named("a..json"), "no file of a model's folder"),
        (named("/etc/passwd.json"), "no file of a model's folder"),
        (named("sub/config.json"), "no file of a model's folder"),
        (named("restorer/../config.json"), "no file of a model's folder"),
        (named("restorer/restorer/config.json"), "no file of a model's folder"),
        (named(".hidden.json"), "no file of a model's folder"),
        (named("a\\b.json"), "no file of a model's folder"),
        (named("a\0.json"), "no file of a model's folder"),
        (named("a\n.json"), "no file of a model's folder"),
        (named("é.json"), "no file of a model's folder"),
        (named("a" * 300 + ".json"), "no file of a model's folder"),
        (named("pytorch_model.bin"), "nothing else is read"),
        (named("weights.pkl"), "nothing else is read"),
        (named("model.pt"), "nothing else is read"),
        (named("modeling.py"), "nothing else is read"),
        (named("config"), "nothing else is read"),
        (named("CONFIG.json"), "twice"),
        (named("tokenizer.json", 0), "0 bytes"),
        (named("tokenizer.json", 1 << 40), "bytes, not 1 to"),
        (named("b.safetensors", MOST_BYTES), "more than"),
        (named("b.safetensors", MOST_BYTES + 1), "bytes, not 1 to"),
        (named("model.gguf"), "a GGUF file and others"),
        ((CONFIG,), "no config.json with weights"),
        ((WEIGHTS,), "no config.json with weights"),
        (tuple(ModelFile(f"{n}.json", 1) for n in range(MOST_FILES + 1)), "1025 files"),
    ],
)
def test_others_are_refused_by_name(files: tuple[ModelFile, ...], said: str) -> None:
    with pytest.raises(BadManifest, match=said):
        check_files(files, PIECE_BYTES)


@pytest.mark.parametrize("piece_bytes", [0, 1, 1 << 15, 1 << 30])
def test_so_are_pieces_that_nobody_would_cut(piece_bytes: int) -> None:
    with pytest.raises(BadManifest, match="its pieces"):
        check_files((CONFIG, WEIGHTS), piece_bytes)


def test_so_are_more_digests_than_this_machine_would_keep() -> None:
    with pytest.raises(BadManifest, match="262,144 pieces"):
        check_files((CONFIG, WEIGHTS), LEAST_PIECE_BYTES)


def test_pieces_cover_every_byte_of_every_file_once() -> None:
    seed = random.randrange(1 << 32)
    order = random.Random(seed)
    sizes = [order.choice((1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 5)) for _ in range(4)]
    files = (CONFIG, *(ModelFile(f"model-{n}.safetensors", size) for n, size in enumerate(sizes)))
    files = (*files, ModelFile("model.safetensors.index.json", 7))
    count = piece_count(files, PIECE_BYTES)
    digests = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(count))
    manifest = Manifest("small", files, digests)
    pieces = list(manifest.pieces())
    assert [piece.number for piece in pieces] == list(range(count)), seed
    assert b"".join(piece.sha256 for piece in pieces) == digests, seed
    for file in files:
        own = [piece for piece in pieces if piece.file == file.name]
        assert [piece.offset for piece in own] == [
            sum(each.byte_count for each in own[:n]) for n in range(len(own))
        ], seed
        assert sum(piece.byte_count for piece in own) == file.byte_count, seed
    with pytest.raises(BadManifest, match="digests"):
        Manifest("small", files, digests[:-32])


def test_its_digest_tells_names_sizes_and_bytes_but_not_what_it_is_called() -> None:
    def of(name: str, size: int, piece: bytes, model_id: str = "a") -> str:
        files = (CONFIG, ModelFile("model.safetensors", 5), ModelFile(name, size))
        return Manifest(model_id, files, bytes(64) + hashlib.sha256(piece).digest()).digest

    same = of("tokenizer.json", 3, b"abc")
    assert of("tokenizer.json", 3, b"abc", "b") == same
    others = {
        of("vocab.json", 3, b"abc"),
        of("tokenizer.json", 4, b"abc"),
        of("tokenizer.json", 3, b"abd"),
    }
    assert len(others | {same}) == 4


def test_what_travels_of_a_folder_is_what_loading_reads(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"):
        (tmp_path / name).write_text("x")
    (tmp_path / "generation_config.json").write_text("")
    for name in ("modeling.py", "tokenizer_custom.py", "pytorch_model.bin", "README.md", "a.json"):
        (tmp_path / name).write_text("x")
    (tmp_path / "restorer").mkdir()
    for name in ("restorer/config.json", "restorer/model.safetensors", "restorer/x.json"):
        (tmp_path / name).write_text("x")
    assert list(travelling_files(tmp_path)) == [
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
        "restorer/config.json",
        "restorer/model.safetensors",
        "tokenizer.json",
    ]
    file = tmp_path / "Any name.gguf"
    file.write_text("x")
    assert travelling_files(file) == {"model.gguf": file}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match="no weights"):
        travelling_files(tmp_path / "empty")

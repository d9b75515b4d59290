"""Which files a model has, in pieces with digests, as one machine tells another of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kakeya_fleet.engine.models.digests import SINGLE_WEIGHTS, WEIGHTS_INDEX

PIECE_BYTES = 8 << 20
DIGEST_BYTES = hashlib.sha256().digest_size
MOST_FILES = 1024
MOST_BYTES = 2 << 40
"""Of one model."""
MOST_PIECES = MOST_BYTES // PIECE_BYTES
"""Whose digests take 8 MiB."""
MOST_TEXT_BYTES = 256 << 20
"""Of a file that is no weights: the largest tokenizers that are published have 35 MB."""
LEAST_PIECE_BYTES, MOST_PIECE_BYTES = 1 << 16, PIECE_BYTES
"""Each that is under way takes as much memory."""
WEIGHTS_SUFFIX, GGUF_SUFFIX = ".safetensors", ".gguf"
TEXT_SUFFIXES = (".json", ".jinja", ".txt", ".model")
"""Configs, tokenizers (`tokenizer.model`, `merges.txt`) and templates."""
SUFFIXES = (WEIGHTS_SUFFIX, GGUF_SUFFIX, *TEXT_SUFFIXES)
_NAME = re.compile(r"(?:restorer/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)
_SHOWN_CHARACTERS = 80


class BadManifest(Exception):
    """Files that no model has, or that this machine would not keep; says which."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file; `name` is relative to the model's folder, `byte_count` above 0."""

    name: str
    byte_count: int


@dataclass(frozen=True, slots=True)
class Piece:
    """`byte_count` bytes of a file from `offset` on; `number` counts pieces of all files from 0."""

    number: int
    file: str
    offset: int
    byte_count: int
    sha256: bytes


def check_files(files: Sequence[ModelFile], piece_bytes: int) -> None:
    """Raises `BadManifest` unless `files` are those of one model, and of kinds that are read.

    That is a folder in the hub's format, or one GGUF file. Nothing that Python would execute is
    among them, and no name leads out of the folder.
    """
    if not LEAST_PIECE_BYTES <= piece_bytes <= MOST_PIECE_BYTES:
        raise BadManifest(f"its pieces have {piece_bytes} bytes")
    if not 0 < len(files) <= MOST_FILES:
        raise BadManifest(f"it has {len(files)} files, not 1 to {MOST_FILES}")
    for file in files:
        _check_file(file)
    # Some file systems take "A" and "a" for one.
    names = {file.name.casefold() for file in files}
    if len(names) < len(files):
        raise BadManifest("it names a file twice")
    total = sum(file.byte_count for file in files)
    if total > MOST_BYTES:
        raise BadManifest(f"its files have {total:,} bytes, more than {MOST_BYTES:,}")
    if piece_count(files, piece_bytes) > MOST_PIECES:
        raise BadManifest(f"its files are cut into more than {MOST_PIECES:,} pieces")
    is_gguf = any(name.endswith(GGUF_SUFFIX) for name in names)
    has_weights = bool(names & {SINGLE_WEIGHTS, WEIGHTS_INDEX})
    if is_gguf and len(files) > 1:
        raise BadManifest("it has a GGUF file and others")
    if not is_gguf and not ("config.json" in names and has_weights):
        raise BadManifest("it has no config.json with weights, and is no GGUF file")


def _check_file(file: ModelFile) -> None:
    shown = repr(file.name[:_SHOWN_CHARACTERS])
    if _NAME.fullmatch(file.name) is None or ".." in file.name:
        raise BadManifest(f"it names {shown}, which is no file of a model's folder")
    suffix = PurePosixPath(file.name).suffix
    if suffix not in SUFFIXES:
        raise BadManifest(
            f"it names {shown}: files of models end in {', '.join(SUFFIXES)}, and nothing else is"
            " read"
        )
    most = MOST_TEXT_BYTES if suffix in TEXT_SUFFIXES else MOST_BYTES
    if not 0 < file.byte_count <= most:
        raise BadManifest(f"{shown} has {file.byte_count:,} bytes, not 1 to {most:,}")


def piece_count(files: Sequence[ModelFile], piece_bytes: int) -> int:
    """How many pieces they have."""
    return sum(-(-file.byte_count // piece_bytes) for file in files)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a model; `digests` has SHA-256 of each piece, in order, 32 bytes each."""

    model_id: str
    files: tuple[ModelFile, ...]
    digests: bytes
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        """Raises `BadManifest`."""
        check_files(self.files, self.piece_bytes)
        count = piece_count(self.files, self.piece_bytes)
        if len(self.digests) != count * DIGEST_BYTES:
            raise BadManifest(f"{len(self.digests)} bytes of digests are not of {count} pieces")

    @property
    def byte_count(self) -> int:
        """Of all files."""
        return sum(file.byte_count for file in self.files)

    @property
    def piece_count(self) -> int:
        """Of all files."""
        return len(self.digests) // DIGEST_BYTES

    @property
    def digest(self) -> str:
        """SHA-256 of names, sizes and pieces, hexadecimal; the model's name is no part of it.

        Covers the size of pieces as 8 bytes big-endian, for each file in order its name in UTF-8,
        a zero byte and its size as 8 bytes, then the digests.
        """
        digest = hashlib.sha256(self.piece_bytes.to_bytes(8))
        for file in self.files:
            digest.update(file.name.encode() + b"\0" + file.byte_count.to_bytes(8))
        digest.update(self.digests)
        return digest.hexdigest()

    def pieces(self) -> Iterator[Piece]:
        """All of them, in order."""
        number = 0
        for file in self.files:
            for offset in range(0, file.byte_count, self.piece_bytes):
                size = min(self.piece_bytes, file.byte_count - offset)
                at = number * DIGEST_BYTES
                sha256 = self.digests[at : at + DIGEST_BYTES]
                yield Piece(number, file.name, offset, size, sha256)
                number += 1

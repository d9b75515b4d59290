"""A model's files to and from the wire; what other nodes say of theirs is checked here."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya.v1 import model_service_pb2 as wire
from kakeya_fleet.engine.models.model_manifest import (
    DIGEST_BYTES,
    BadManifest,
    Manifest,
    ModelFile,
    check_files,
    piece_count,
)


def files_to_wire(files: Sequence[ModelFile], piece_bytes: int) -> wire.ModelFiles:
    """All files of a model."""
    told = [wire.ModelFile(name=file.name, byte_count=file.byte_count) for file in files]
    return wire.ModelFiles(files=told, piece_bytes=piece_bytes)


class ManifestReader:
    """Puts a manifest together from messages, and takes no more of them than it has.

    Raises `BadManifest` with the first message that no node would send of a model.
    """

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id
        self._files: tuple[ModelFile, ...] | None = None
        self._piece_bytes = 0
        self._digests = bytearray()
        self._awaited = 0

    def take(self, message: wire.GetModelFilesResponse) -> None:
        """The next message."""
        if self._files is None:
            if message.WhichOneof("kind") != "files":
                raise BadManifest("its first message has no files")
            told = message.files
            files = tuple(ModelFile(file.name, file.byte_count) for file in told.files)
            check_files(files, told.piece_bytes)
            self._files, self._piece_bytes = files, told.piece_bytes
            self._awaited = DIGEST_BYTES * piece_count(files, told.piece_bytes)
            return
        digests = message.digests.sha256
        if not digests or len(self._digests) + len(digests) > self._awaited:
            raise BadManifest("it has other digests than pieces")
        self._digests += digests

    @property
    def piece_count(self) -> int:
        """Pieces of all files; 0 before these have come."""
        return self._awaited // DIGEST_BYTES

    @property
    def is_whole(self) -> bool:
        """Whether all of it has come: whoever says more is not heard."""
        return self._files is not None and len(self._digests) == self._awaited

    def manifest(self) -> Manifest:
        """All of it. Raises `BadManifest` where something is missing."""
        if self._files is None or not self.is_whole:
            raise BadManifest("it ended before all pieces had a digest")
        return Manifest(self._model_id, self._files, bytes(self._digests), self._piece_bytes)

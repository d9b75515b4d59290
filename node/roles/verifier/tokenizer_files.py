"""The tokenizer of a served model, as the files of its folder."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

from kakeya.tokenizer_cache import MAX_TOKENIZER_BYTES
from kakeya.tokenizer_folder import TOKENIZER_FILES, TOKENIZER_JSON
from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.digests import CHUNK_BYTES as HASHED_BYTES
from kakeya_fleet.engine.models.model_folder import resolve_tokenizer
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.rpc.refusals import TokenizerNotFound

CHUNK_BYTES = 256 * 1024
"""Bytes of a file in one message."""


async def tokenizer_messages(served: ServedVerifier) -> AsyncIterator[wire.GetTokenizerResponse]:
    """The header, then the bytes of each file, read off the event loop a chunk at a time.

    Raises `TokenizerNotFound` before the first message. A file that changes meanwhile does
    not pass for the one that the header names.
    """
    paths, header = await asyncio.to_thread(_header, served)
    yield wire.GetTokenizerResponse(header=header)
    for path, announced in zip(paths, header.files, strict=True):
        for start in range(0, announced.byte_count, CHUNK_BYTES):
            size = min(CHUNK_BYTES, announced.byte_count - start)
            yield wire.GetTokenizerResponse(chunk=await asyncio.to_thread(_read, path, start, size))


def _header(served: ServedVerifier) -> tuple[list[Path], wire.TokenizerHeader]:
    """The files that are there, and what is said of them before they are sent."""
    model = served.offer.model_id
    try:
        folder = resolve_tokenizer(served.source).path
    except ModelUnusable as error:
        raise _missing(model, f"its folder is not to be had here: {error}") from error
    try:
        # A hub's snapshot is links into its cache: they are followed.
        paths = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
        if not paths or paths[0].name != TOKENIZER_JSON:
            raise _missing(model, f"{folder} has no {TOKENIZER_JSON}")
        byte_count = sum(path.stat().st_size for path in paths)
        if byte_count > MAX_TOKENIZER_BYTES:
            raise _missing(model, f"its files take {byte_count:,} bytes, more than 64 MiB")
        files = [_announced(path) for path in paths]
    except OSError as error:
        raise _missing(model, f"its files cannot be read: {error}") from error
    if files[0].sha256 != served.offer.tokenizer_digest:
        raise _missing(model, f"{paths[0]} changed since the model was loaded; restart the node")
    return paths, wire.TokenizerHeader(tokenizer_digest=files[0].sha256, files=files)


def _announced(path: Path) -> wire.TokenizerFile:
    digest = hashlib.sha256()
    byte_count = 0
    with path.open("rb") as file:
        while chunk := file.read(HASHED_BYTES):
            digest.update(chunk)
            byte_count += len(chunk)
    return wire.TokenizerFile(name=path.name, byte_count=byte_count, sha256=digest.hexdigest())


def _read(path: Path, start: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _missing(model: str, detail: str) -> TokenizerNotFound:
    return TokenizerNotFound(
        f"{model!r} is served without a tokenizer that could be sent: {detail}; give the "
        "client the model's folder",
        model_id=model[:64],
    )

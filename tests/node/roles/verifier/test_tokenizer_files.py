"""The tokenizer of a served model, as it leaves the node."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kakeya.text import TextCodec
from kakeya.tokenizer_cache import AnnouncedFile, AnnouncedTokenizer
from kakeya.tokenizer_folder import TOKENIZER_FILES, read_files
from kakeya_fleet.engine.models.digests import tokenizer_digest
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.tokenizer_files import CHUNK_BYTES, tokenizer_messages
from kakeya_fleet.node.rpc.refusals import TokenizerNotFound

TINY = Path(__file__).parents[4] / "engine" / "shipped" / "tiny"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder: the tokenizer, and what is nobody's business."""
    path = tmp_path / "model"
    path.mkdir()
    for name in TOKENIZER_FILES:
        if (TINY / name).is_file():
            shutil.copy(TINY / name, path / name)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "tokenizer.model").write_bytes(b"another format")
    return path


def served(source: Path | str, digest: str = "") -> ServedVerifier:
    """What of a served verifier matters here."""
    digest = digest or tokenizer_digest(Path(source))
    offer = SimpleNamespace(model_id="toy", tokenizer_digest=digest)
    return cast("ServedVerifier", SimpleNamespace(source=str(source), offer=offer))


async def sent(verifier: ServedVerifier) -> dict[str, bytes]:
    """The files as a client takes them."""
    messages = [message async for message in tokenizer_messages(verifier)]
    header = messages[0].header
    assert not any(message.HasField("header") for message in messages[1:])
    assert all(0 < len(message.chunk) <= CHUNK_BYTES for message in messages[1:])
    files = [AnnouncedFile(file.name, file.byte_count, file.sha256) for file in header.files]
    announced = AnnouncedTokenizer.checked(header.tokenizer_digest, files)
    return announced.split(b"".join(message.chunk for message in messages[1:]))


async def test_the_files_of_the_contract_leave_and_no_others(folder: Path) -> None:
    files = await sent(served(folder))
    assert files == {name: (TINY / name).read_bytes() for name in files}
    assert list(files) == [name for name in TOKENIZER_FILES if (TINY / name).is_file()]
    codec = TextCodec(read_files(files, "the node"))
    assert codec.encode("hello") == TextCodec.from_folder(TINY).encode("hello")


async def test_a_large_file_travels_in_chunks_and_an_empty_one_in_none(folder: Path) -> None:
    (folder / "config.json").write_bytes(b'{"a": 1}' + b" " * (3 * CHUNK_BYTES))
    (folder / "chat_template.jinja").write_bytes(b"")
    files = await sent(served(folder))
    assert len(files["config.json"]) == 3 * CHUNK_BYTES + 8
    assert files["chat_template.jinja"] == b""


def linked_into(snapshot: Path, folder: Path) -> None:
    for path in folder.iterdir():
        (snapshot / path.name).symlink_to(path)


async def test_links_into_the_hubs_cache_are_followed(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    linked_into(snapshot, folder)
    assert await sent(served(snapshot)) == await sent(served(folder))


async def test_a_shipped_model_is_found_by_its_name() -> None:
    assert await sent(served("tiny", tokenizer_digest(TINY)))


def without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def another_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b"{}")


def too_large(folder: Path) -> None:
    with (folder / "special_tokens_map.json").open("wb") as file:
        file.truncate(64 * 1024 * 1024)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_tokenizer, "has no tokenizer.json"),
        (another_tokenizer, "restart the node"),
        (too_large, "more than 64 MiB"),
        (shutil.rmtree, "is not to be had here"),
    ],
)
async def test_what_cannot_be_sent_is_refused_by_name(
    folder: Path, spoil: Callable[[Path], object], words: str
) -> None:
    verifier = served(folder)
    spoil(folder)
    with pytest.raises(TokenizerNotFound, match=words) as caught:
        await sent(verifier)
    assert caught.value.metadata == {"model_id": "toy"}

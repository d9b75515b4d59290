"""Tokenizers that travel: fetched, checked, kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, Client
from kakeya.v1 import runtime_pb2
from tests.support.scripted_answers import tokenizer_messages
from tests.support.scripted_node import ScriptedNode

TINY = Path(__file__).parents[2] / "engine" / "shipped" / "tiny"
NAMES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
CHAT = [{"role": "user", "content": "hello"}]
Spoiler: TypeAlias = Callable[[list[runtime_pb2.GetTokenizerResponse]], object]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "kakeya" / "tokenizers"


@pytest.fixture
def serving(node: ScriptedNode) -> ScriptedNode:
    node.tokenizer_files = {name: (TINY / name).read_bytes() for name in NAMES}
    return node


def kept(cache: Path) -> dict[Path, Path]:
    """The kept files by path, no half of one among them."""
    return {path.relative_to(cache): path for path in cache.glob("**/*") if path.is_file()}


def folders(cache: Path) -> dict[str, set[str]]:
    """The names of the files in each of the cache's folders."""
    return {folder.name: {path.name for path in folder.iterdir()} for folder in cache.iterdir()}


async def test_a_nodes_tokenizer_is_the_models(serving: ScriptedNode, cache: Path) -> None:
    local = kakeya.text.TextCodec.from_folder(TINY)
    async with AsyncClient(serving.address) as client:
        codec = await client.text("tiny")
        assert codec.encode("def f(): ☕") == local.encode("def f(): ☕")
        assert codec.render_chat(CHAT) == local.render_chat(CHAT)
        assert (codec.digest, codec.stop_token_ids) == (local.digest, local.stop_token_ids)
        assert await client.text("tiny") is codec
    (names,) = folders(cache).values()
    assert names == set(NAMES)
    assert serving.requests["GetTokenizer"][0].model_id == "tiny"


async def test_what_is_kept_does_not_travel_again(serving: ScriptedNode, cache: Path) -> None:
    async with AsyncClient(serving.address) as client:
        await client.text("tiny")
    # From here on the node has the header alone.
    serving.tokenizer_messages = tokenizer_messages(serving.tokenizer_files)[:1]
    async with AsyncClient(serving.address) as client:
        assert (await client.text("tiny")).render_chat(CHAT)
    path = next(path for name, path in kept(cache).items() if name.name == "chat_template.jinja")
    path.write_text("damaged")
    async with AsyncClient(serving.address) as client:
        with pytest.raises(kakeya.TokenizerMismatch, match="number of bytes"):
            await client.text("tiny")
    serving.tokenizer_messages = None
    async with AsyncClient(serving.address) as client:
        assert (await client.text("tiny")).has_chat_template
    assert path.read_bytes() == serving.tokenizer_files["chat_template.jinja"]
    assert len(folders(cache)) == 1


async def test_models_that_share_a_tokenizer_keep_their_own_templates(
    serving: ScriptedNode, cache: Path
) -> None:
    async with AsyncClient(serving.address) as client:
        first = await client.text("tiny")
        serving.tokenizer_files["chat_template.jinja"] = b"another"
        second = await client.text("other")
        assert first.digest == second.digest
        assert second.render_chat(CHAT) == "another" != first.render_chat(CHAT)
    assert len(folders(cache)) == 2


async def test_a_node_that_serves_it_elsewhere_is_followed(
    node: ScriptedNode, other_node: ScriptedNode
) -> None:
    other_node.tokenizer_files = {"tokenizer.json": (TINY / "tokenizer.json").read_bytes()}
    node.refuse(
        "GetTokenizer",
        grpc.StatusCode.FAILED_PRECONDITION,
        reason="MODEL_SERVED_ELSEWHERE",
        metadata={"address": other_node.address},
    )
    async with AsyncClient(node.address) as client:
        codec = await client.text("tiny")
    assert codec.encode("hello")
    assert not codec.has_chat_template


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("TOKENIZER_NOT_FOUND", kakeya.TokenizerNotFound), ("MODEL_NOT_FOUND", kakeya.ModelNotFound)],
)
async def test_what_a_node_has_not_is_named(
    node: ScriptedNode, reason: str, kind: type[kakeya.KakeyaError]
) -> None:
    node.refuse("GetTokenizer", grpc.StatusCode.NOT_FOUND, reason=reason)
    async with AsyncClient(node.address) as client:
        with pytest.raises(kind) as caught:
            await client.text("tiny")
    assert caught.value.reason == reason


def renamed(name: str) -> Spoiler:
    return lambda messages: setattr(messages[0].header.files[1], "name", name)


SPOILED: dict[str, Spoiler] = {
    "traversal": renamed("../../../evil.json"),
    "absolute": renamed("/tmp/evil.json"),
    "unknown": renamed("model.py"),
    "twice": renamed("tokenizer.json"),
    "order": lambda messages: messages[0].header.files.reverse(),
    "nothing": lambda messages: messages[0].header.ClearField("files"),
    "large": lambda messages: setattr(messages[0].header.files[0], "byte_count", 1 << 40),
    "digest": lambda messages: setattr(messages[0].header, "tokenizer_digest", "0" * 64),
    "no digest": lambda messages: setattr(messages[0].header.files[1], "sha256", "../x"),
    "bytes": lambda messages: setattr(messages[1], "chunk", b"x" + messages[1].chunk[1:]),
    "short": lambda messages: messages.pop(),
    "long": lambda messages: messages.append(runtime_pb2.GetTokenizerResponse(chunk=b"more")),
    "headless": lambda messages: messages.pop(0),
}


@pytest.mark.parametrize("how", sorted(SPOILED))
async def test_what_is_no_tokenizer_is_refused_and_not_kept(
    serving: ScriptedNode, cache: Path, tmp_path: Path, how: str
) -> None:
    messages = tokenizer_messages(serving.tokenizer_files)
    SPOILED[how](messages)
    serving.tokenizer_messages = messages
    async with AsyncClient(serving.address) as client:
        with pytest.raises(kakeya.TokenizerMismatch):
            await client.text("tiny")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]  # noqa: ASYNC240 - nobody else waits


async def test_a_disk_that_takes_nothing_costs_the_next_download(
    serving: ScriptedNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    async with AsyncClient(serving.address) as client:
        assert (await client.text("tiny")).encode("hello")
    assert "not kept" in caplog.text


def test_the_synchronous_client_has_it_too(threaded_node: ScriptedNode) -> None:
    threaded_node.tokenizer_files = {name: (TINY / name).read_bytes() for name in NAMES}
    with Client(threaded_node.address) as client:
        assert client.text("tiny").decode(client.text("tiny").encode("hello")) == "hello"


WRITER = """
import sys
from pathlib import Path
from kakeya.tokenizer_cache import AnnouncedFile, AnnouncedTokenizer
cache, folder, names = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
from hashlib import sha256
content = {name: (folder / name).read_bytes() for name in names}
files = [AnnouncedFile(n, len(c), sha256(c).hexdigest()) for n, c in content.items()]
announced = AnnouncedTokenizer.checked(files[0].sha256, files)
for _ in range(40):
    announced.write(cache, content)
    # In between another process may have made room for its own copy.
    assert announced.read(cache) in (None, content)
assert list(announced.read(cache) or content) == names
"""


def test_processes_that_write_at_once_leave_a_whole_tokenizer(cache: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(cache), str(TINY), *NAMES]
    writers = [subprocess.Popen(command) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    (folder,) = cache.iterdir()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: (TINY / name).read_bytes() for name in NAMES
    }

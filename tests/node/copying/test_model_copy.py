"""A model comes over real sockets from nodes that are right, lie, fall silent and die."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import model_service_pb2 as wire
from kakeya.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server as register
from kakeya_fleet.engine.errors import ModelCacheUnwritable, ModelInUse
from kakeya_fleet.engine.models import pulled_models
from kakeya_fleet.engine.models.model_manifest import Piece
from kakeya_fleet.engine.models.pulled_models import PulledPart, stored, stored_models
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.node.copying import model_copy, piece_plan, sources
from kakeya_fleet.node.copying.disk_threads import DiskThreads
from kakeya_fleet.node.copying.model_copy import ModelCopy, SourceState
from kakeya_fleet.node.copying.sources import Source
from kakeya_fleet.node.rpc.listening import listen, make_server
from kakeya_fleet.node.rpc.refusals import ModelNotCopied
from tests.node.conftest import Serve
from tests.support.calls import until
from tests.support.model_sources import PIECE_BYTES, FilesNode, answer_of, model_of

if TYPE_CHECKING:
    from tests.support.model_sources import Context

FILES = {
    "config.json": b"{}",
    "model.safetensors": os.urandom(24 * PIECE_BYTES + 7),
    "tokenizer.json": os.urandom(3 * PIECE_BYTES),
}
OTHER = FILES | {"config.json": b"[]"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pulled_models, "store_folder", lambda: tmp_path / "store")
    return tmp_path / "store"


class Machines:
    """Nodes `a`, `b`, ... with what they give, and copies from all of them."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._threads = DiskThreads()
        self.nodes: list[FilesNode] = []
        self.sources: list[Source] = []
        self.progress: list[tuple[int, int]] = []

    async def add(self, node: FilesNode) -> FilesNode:
        name = "abcdefgh"[len(self.nodes)]
        channel = await self._serve(partial(register, node))
        self.nodes.append(node)
        self.sources.append(Source(name * 64, name, lambda: channel))
        return node

    def copy(self) -> ModelCopy:
        return ModelCopy(
            "small",
            self.sources,
            self._threads,
            time.monotonic,
            lambda done, total: self.progress.append((done, total)),
        )


class Reopened:
    """The channel of now to a node, which its own node closes and opens anew."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self.opened = 0

    def __call__(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address)
            self.opened += 1
        return self._channel

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


@pytest_asyncio.fixture
async def reopened() -> AsyncIterator[Callable[[FilesNode], Awaitable[Reopened]]]:
    """reopened(node): the way to it."""
    servers, ways = [], []

    async def start(node: FilesNode) -> Reopened:
        server = make_server()
        register(node, server)
        port = listen(server, "127.0.0.1", 0, 0)
        await server.start()
        servers.append(server)
        ways.append(Reopened(f"127.0.0.1:{port}"))
        return ways[-1]

    yield start
    for way in ways:
        await way.close()
    for server in servers:
        await server.stop(None)


@pytest.fixture
def machines(serve: Serve) -> Machines:
    return Machines(serve)


def check_whole() -> None:
    model = stored("small")
    assert model is not None
    assert model.manifest.digest == model_of(FILES).digest
    assert {name: (model.files / name).read_bytes() for name in FILES} == FILES


def faults(copy: ModelCopy) -> dict[str, str]:
    return {state.source.name: state.fault for state in copy.sources}


async def die(number: int, context: Context, *, after: int) -> None:
    if number >= after:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the machine went away")


async def silent(_number: int, _context: Context) -> None:
    await asyncio.Event().wait()


async def test_a_model_comes_from_several_at_once_and_each_piece_once(machines: Machines) -> None:
    nodes = [await machines.add(FilesNode(FILES)) for _ in range(3)]
    copy = machines.copy()
    model = await copy.run()
    check_whole()
    assert model.sources == ("a", "b", "c")
    asked = [digest for node in nodes for digest in node.asked]
    assert len(asked) == len(set(asked)) == model.manifest.piece_count
    assert all(node.asked for node in nodes)
    total = model.manifest.byte_count
    assert sum(state.done_bytes for state in copy.sources) == total
    assert [done for done, _ in machines.progress] == sorted(done for done, _ in machines.progress)
    assert machines.progress[-1] == (total, total)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: FilesNode(FILES, spoil=lambda data: bytes(len(data))), "gave wrong bytes"),
        (lambda: FilesNode(FILES, spoil=lambda data: data[:-1]), "65,535 bytes for a piece"),
        (lambda: FilesNode(FILES, spoil=lambda data: data + b"x"), "bytes for a piece|^$"),
        (lambda: FilesNode(FILES, endless=True, spoil=lambda _: b""), "bytes for a piece|wrong"),
        (lambda: FilesNode(FILES, before=partial(die, after=0)), "the machine went away"),
        (lambda: FilesNode(FILES, before=partial(die, after=3)), "the machine went away"),
        (lambda: FilesNode(FILES, before=silent), "said nothing"),
        (lambda: FilesNode(OTHER), "other files of that name"),
        (lambda: FilesNode(FILES, told=[]), "ended before"),
        (lambda: FilesNode(FILES, told=answer_of(model_of(FILES))[1:]), "no files"),
        (lambda: FilesNode(FILES, told=answer_of(model_of(FILES))[:1]), "ended before"),
        (
            lambda: FilesNode(FILES, told=[*answer_of(model_of(FILES))[:1], digests(1 << 20)]),
            "other digests than pieces",
        ),
        (lambda: FilesNode(FILES, told=[files("../../evil.json")]), "no file of a model's folder"),
        (lambda: FilesNode(FILES, told=[files("pytorch_model.bin")]), "nothing else is read"),
        (lambda: FilesNode(FILES, told=[files("a.json", 1 << 50)]), "bytes, not 1 to"),
    ],
)
async def test_who_lies_dies_or_is_silent_is_named_and_left_and_others_go_on(
    machines: Machines,
    bad: Callable[[], FilesNode],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
) -> None:
    if said == "said nothing":
        monkeypatch.setattr(sources, "SILENT_SECONDS", 3.0)
    await machines.add(FilesNode(FILES))
    await machines.add(bad())
    await machines.add(FilesNode(FILES))
    copy = machines.copy()
    await copy.run()
    check_whole()
    found = faults(copy)
    assert (found["a"], found["c"]) == ("", "")
    assert re.search(said, found["b"]), found["b"]
    assert sorted(path.name for path in store.parent.iterdir()) == ["store"]


def files(name: str, size: int = 1) -> wire.GetModelFilesResponse:
    (told, _) = answer_of(model_of(FILES))
    told.files.files.add(name=name, byte_count=size)
    return told


def digests(count: int) -> wire.GetModelFilesResponse:
    return wire.GetModelFilesResponse(digests=wire.PieceDigests(sha256=bytes(count)))


async def test_most_say_which_files_it_has_and_the_first_where_as_many_say_otherwise(
    machines: Machines,
) -> None:
    for each in (OTHER, FILES, FILES):
        await machines.add(FilesNode(each))
    await machines.copy().run()
    check_whole()
    pulled_models.remove("small")
    del machines.sources[2]
    machines.sources.reverse()
    copy = machines.copy()
    await copy.run()
    check_whole()
    assert faults(copy)["a"] == "it has other files of that name"


async def test_who_tells_its_files_late_helps_from_then_on(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_copy, "OTHERS_SECONDS", 0.1)
    begun, both = asyncio.Event(), asyncio.Event()

    async def wait(number: int, _context: Context) -> None:
        begun.set()
        if number >= model_copy.AT_ONCE:
            await both.wait()

    def came(_number: int, _context: Context) -> None:
        both.set()

    await machines.add(FilesNode(FILES, before=wait))
    late = await machines.add(FilesNode(FILES, before=came, tells_after=begun))
    await machines.copy().run()
    check_whole()
    assert late.asked


async def test_a_slow_source_does_not_hold_up_the_end(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piece_plan, "LATE_SECONDS", 0.2)
    await machines.add(FilesNode(FILES, before=silent))
    await machines.add(FilesNode(FILES))
    copy = machines.copy()
    async with asyncio.timeout(sources.SILENT_SECONDS - 1):
        await copy.run()
    check_whole()
    assert faults(copy) == {"a": "", "b": ""}


async def test_one_that_is_busy_is_asked_again(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_copy, "BUSY_SECONDS", 0.01)

    async def full(number: int, context: Context) -> None:
        if number < 5:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "all are taken")

    await machines.add(FilesNode(FILES, before=full))
    copy = machines.copy()
    await copy.run()
    check_whole()
    assert faults(copy) == {"a": ""}


@pytest.mark.parametrize("when", [{0}, {3}, {2, 9, 10}], ids=str)
async def test_a_channel_that_is_opened_anew_is_no_fault_of_its_source(
    machines: Machines, reopened: Callable[[FilesNode], Awaitable[Reopened]], when: set[int]
) -> None:
    """As with every new certificate, and every change of networks: its only source goes on."""

    async def close(number: int, _context: Context) -> None:
        if number in when:
            await way.close()

    way = await reopened(FilesNode(FILES, before=close))
    machines.sources.append(Source("a" * 64, "a", way))
    copy = machines.copy()
    await copy.run()
    check_whole()
    assert faults(copy) == {"a": ""}
    assert 1 < way.opened <= 1 + len(when)
    total = model_of(FILES).byte_count
    assert machines.progress[-1] == (total, total)


async def test_a_channel_that_is_closed_while_files_are_told_is_no_fault(
    machines: Machines, reopened: Callable[[FilesNode], Awaitable[Reopened]]
) -> None:
    node = FilesNode(FILES, tells_after=asyncio.Event())
    way = await reopened(node)
    machines.sources.append(Source("a" * 64, "a", way))
    copy = machines.copy()
    running = asyncio.ensure_future(copy.run())
    await until(lambda: way.opened == 1)
    await way.close()
    assert node.tells_after is not None
    node.tells_after.set()
    await running
    check_whole()
    assert faults(copy) == {"a": ""}


async def test_a_channel_that_is_always_closed_and_a_node_that_left_are_told(
    machines: Machines, reopened: Callable[[FilesNode], Awaitable[Reopened]]
) -> None:
    async def close(_number: int, _context: Context) -> None:
        await way.close()

    def left() -> grpc.aio.Channel:
        raise NodeNotFound("no node 'b' is known here", node_id="b")

    way = await reopened(FilesNode(FILES, before=close))
    machines.sources += [Source("a" * 64, "a", way), Source("b" * 64, "b", left)]
    copy = machines.copy()
    with pytest.raises(ModelNotCopied):
        await copy.run()
    assert faults(copy) == {"a": sources.CLOSED, "b": "it has left the fleet"}


async def test_when_nobody_is_left_each_is_named_and_the_next_copy_goes_on(
    machines: Machines,
) -> None:
    first = await machines.add(FilesNode(FILES, before=partial(die, after=9)))
    await machines.add(FilesNode(FILES, told=[files("x.py")]))
    with pytest.raises(ModelNotCopied, match=r"a: the machine went away; b: what it says") as error:
        await machines.copy().run()
    (part,) = stored_models()
    assert not part.is_whole
    assert int(error.value.metadata["kept_bytes"]) == part.byte_count > 0
    again = await machines.add(FilesNode(FILES))
    machines.sources = machines.sources[2:]
    copy = machines.copy()
    await copy.run()
    check_whole()
    # One was cut off under the last piece of the other.
    came = part.byte_count // PIECE_BYTES
    assert came - 1 <= 28 - len(again.asked) <= len(first.asked)
    assert not set(again.asked) & {
        piece.sha256 for piece in list(part.manifest.pieces())[: came - model_copy.AT_ONCE]
    }


async def test_what_is_being_written_when_its_source_is_left_counts(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    write, leave = PulledPart.write, ModelCopy._leave

    def late(part: PulledPart, piece: Piece, data: memoryview) -> bool:
        if piece.number == 2:
            left.wait(30)
        return write(part, piece, data)

    def leaving(copy: ModelCopy, state: SourceState, fault: str) -> None:
        leave(copy, state, fault)
        left.set()

    monkeypatch.setattr(PulledPart, "write", late)
    monkeypatch.setattr(ModelCopy, "_leave", leaving)
    await machines.add(FilesNode(FILES, before=partial(die, after=9)))
    with pytest.raises(ModelNotCopied) as error:
        await machines.copy().run()
    (part,) = stored_models()
    assert int(error.value.metadata["kept_bytes"]) == part.byte_count > 0


async def test_a_cancelled_copy_leaves_its_part_to_the_next_one(machines: Machines) -> None:
    reached = asyncio.Event()

    async def hold(number: int, _context: Context) -> None:
        if number >= 6:
            reached.set()
            await asyncio.Event().wait()

    await machines.add(FilesNode(FILES, before=hold))
    running = asyncio.ensure_future(machines.copy().run())
    await reached.wait()
    with pytest.raises(ModelInUse):
        await machines.copy().run()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    again = await machines.add(FilesNode(FILES))
    del machines.sources[0]
    await machines.copy().run()
    check_whole()
    assert len(again.asked) < 28


async def test_a_full_disk_ends_the_copy_by_name(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = PulledPart.write, []

    def full(part: PulledPart, piece: object, data: bytes) -> bool:
        written.append(piece)
        if len(written) > 4:
            raise ModelCacheUnwritable("the disk is full")
        return write(part, piece, data)  # type: ignore[arg-type]

    monkeypatch.setattr(PulledPart, "write", full)
    await machines.add(FilesNode(FILES))
    await machines.add(FilesNode(FILES))
    with pytest.raises(ModelCacheUnwritable, match="full"):
        await machines.copy().run()
    monkeypatch.undo()


async def test_a_copy_of_what_is_there_in_part_takes_no_wrong_piece(machines: Machines) -> None:
    part = PulledPart(model_of(FILES))
    part.open()
    for piece in part.manifest.pieces():
        data = FILES[piece.file][piece.offset : piece.offset + piece.byte_count]
        part.write(piece, data)
    part.close()
    (there,) = stored_models()
    weights = there.files / "model.safetensors"
    with weights.open("r+b") as file:
        file.write(b"rot")
    node = await machines.add(FilesNode(FILES))
    await machines.copy().run()
    check_whole()
    assert len(node.asked) == 1

"""The ways that tensors travel between two processes, each timed alike.

A transfer's seconds end when the sender knows that the other end has all of it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import grpc.aio

from kakeya_fleet.node.links.ends.link_end import LinkUse
from kakeya_fleet.node.links.protocol.contract import LinkMode, LinkPurpose, RoadKind, TensorLink
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor
from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.grpc_settings import client_options
from scripts.bench.bare_ring import BareRing
from scripts.bench.link_peer import HOST, TRANSFER_SECONDS, builders
from scripts.bench.raw_tcp import HEADER, raw_tcp_peer

OPEN_SECONDS = 30.0


class Side(Protocol):
    """One way."""

    async def transfers(self, data: memoryview, repeats: int) -> list[float]:
        """Seconds of each."""
        ...


class Peer:
    """The other end's process; ends with the context."""

    def __init__(self, process: asyncio.subprocess.Process, told: dict[str, int]) -> None:
        self._process = process
        self.announcements = told["announcements"]
        self.grpc = f"{HOST}:{told['grpc']}"

    @classmethod
    async def start(cls) -> Self:
        """Raises `RuntimeError` when it does not."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "scripts.bench.link_peer",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process, await _told(process))

    async def ask(self, kind: RoadKind, nonce: bytes, terms: object) -> dict[str, object]:
        """Its answer to a proposed road. Raises `RoadFailed` when it has none."""
        if self._process.stdin is None:
            raise RuntimeError("the peer was started without pipes")
        asked = {"kind": kind.value, "nonce": nonce.hex(), "terms": terms}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        told: dict[str, object] = await _told(self._process)
        if "failed" in told:
            raise RoadFailed(str(told["failed"]))
        return told

    async def close(self) -> None:
        """Ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def _told(process: asyncio.subprocess.Process) -> dict[str, Any]:
    line = await process.stdout.readline() if process.stdout is not None else b""
    if not line:
        raise RuntimeError("the links' peer has ended; see what it wrote above")
    told: dict[str, Any] = json.loads(line)
    return told


@dataclass(frozen=True, slots=True)
class Blocking:
    """A way whose calls block, in a thread."""

    transfer: Callable[[memoryview, int], list[float]]

    async def transfers(self, data: memoryview, repeats: int) -> list[float]:
        """Seconds of each."""
        return await asyncio.to_thread(self.transfer, data, repeats)


@dataclass(frozen=True, slots=True)
class OnRoad:
    """A road alone: announced and acknowledged on a TCP connection."""

    road: Road
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def transfers(self, data: memoryview, repeats: int) -> list[float]:
        """Seconds of each. Raises `RoadFailed`."""
        found = []
        for _ in range(repeats):
            began = time.perf_counter()
            self.writer.write(HEADER.pack(len(data)))
            await self.road.send(data, seconds=TRANSFER_SECONDS)
            async with asyncio.timeout(TRANSFER_SECONDS):
                await self.reader.readexactly(HEADER.size)
            found.append(time.perf_counter() - began)
        return found


@dataclass(frozen=True, slots=True)
class OnLink:
    """An open link, as the node uses it."""

    link: TensorLink

    async def transfers(self, data: memoryview, repeats: int) -> list[float]:
        """Seconds of each. Raises `LinkClosed`."""
        tensor = WireTensor("bench", TensorDtype.INT8, (len(data),), data)
        found = []
        for _ in range(repeats):
            began = time.perf_counter()
            await self.link.send(tensor)
            await self.link.flush()
            found.append(time.perf_counter() - began)
        return found


@asynccontextmanager
async def raw_tcp() -> AsyncIterator[Side]:
    """One TCP connection."""
    with raw_tcp_peer(HOST) as peer:
        yield Blocking(lambda data, repeats: [peer.transfer(data) for _ in range(repeats)])


@asynccontextmanager
async def bare_ring(piece_bytes: int) -> AsyncIterator[Side]:
    """A ring of two processes. Raises `RingFailed`."""
    ring = await asyncio.to_thread(BareRing, piece_bytes)
    try:
        yield Blocking(lambda data, repeats: ring.transfers(len(data), repeats))
    finally:
        ring.close()


@asynccontextmanager
async def road(kind: RoadKind, peer: Peer) -> AsyncIterator[Side]:
    """A built road. Raises `RoadFailed`."""
    nonce = secrets.token_bytes(32)
    plan = await builders()[kind].propose(nonce)
    try:
        answered = await peer.ask(kind, nonce, dict(plan.terms))
    except BaseException:
        await plan.abandon()
        raise
    terms = answered["terms"]
    if not isinstance(terms, dict) or not isinstance(answered["number"], int):
        raise TypeError("a peer answers with terms and a number")
    built = await plan.build(terms)
    try:
        reader, writer = await asyncio.open_connection(HOST, peer.announcements)
        writer.write(HEADER.pack(answered["number"]))
        yield OnRoad(built, reader, writer)
        writer.close()
    finally:
        await built.close()


@asynccontextmanager
async def link(
    peer: Peer, mode: LinkMode, roads: Sequence[RoadBuilder]
) -> AsyncIterator[TensorLink]:
    """An open link; one whose mode names a road is on it. Raises `TimeoutError`."""
    links = OpenLinks(tuple(roads), NodeMetrics(), mode=mode)
    changed = asyncio.Event()
    try:
        async with grpc.aio.insecure_channel(peer.grpc, options=client_options()) as channel:
            request = LinkRequest(LinkPurpose.FEATURES, sender_node_id="bench")
            opened = await links.open(
                channel,
                request,
                peer_node_id="peer",
                timeout=OPEN_SECONDS,
                use=LinkUse(on_change=lambda _change: changed.set()),
            )
            if mode is not LinkMode.AUTO:
                await _carried_by(opened.end, RoadKind(mode.value), changed)
            yield opened.end
            await opened.end.close()
    finally:
        await links.close()


async def _carried_by(end: TensorLink, kind: RoadKind, changed: asyncio.Event) -> None:
    """Waits until that carries the link. Raises `TimeoutError`, with the state's reason."""
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            while end.state.kind is not kind:
                await changed.wait()
                changed.clear()
    except TimeoutError as error:
        raise TimeoutError(f"the link is not on {kind}: {end.state.reason}") from error

"""The far end of a road of shared memory, wrong: at its Unix socket, and in what it hands over."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import grpc.aio

from kakeya.v1 import placement_pb2, tensor_pb2, tensor_pb2_grpc
from kakeya_fleet.engine.backends.mlx_ring.protocol import PROOF_BYTES, Pieces
from kakeya_fleet.node.links.roads.meeting import Meeting, host_digest
from kakeya_fleet.node.links.roads.segment import anonymous_file, seal
from scripts.attack.calls import reason_of
from scripts.attack.seeds import Seeds, seeds_for
from scripts.attack.tally import Tally

SERVICE = "link sockets"
PIECES = Pieces(4096, 4)
WAIT_SECONDS = 1.0
MOST_FRAMES = 8


class RoadFuzzer:
    """Opens a link, proposes a road, and is not what it said when the agent comes for it."""

    def __init__(
        self, channel: grpc.aio.Channel, node_id: str, tally: Tally, rng: random.Random
    ) -> None:
        """`channel` leads to the node, `node_id` is who calls."""
        self._node_id = node_id
        self._channel = channel
        self._stub = tensor_pb2_grpc.TensorServiceStub(channel)
        self._tally = tally
        self._rng = rng
        self._seeds: Seeds | None = None

    async def once(self) -> None:
        """One link with one road."""
        self._seeds = self._seeds or await seeds_for(
            self._channel, self._rng, sender_node_id=self._node_id
        )
        meeting = Meeting(None)
        link_id = ""
        try:
            link_id = (await self._stub.OpenLink(self._seeds.link(), timeout=5)).link_id
            comer = await self._proposed(link_id, meeting)
            await self.meet(comer)
        except grpc.aio.AioRpcError as error:
            self._tally.ended(SERVICE, error.code().name, reason_of(error))
        except TimeoutError:
            self._tally.ended(SERVICE, "nobody came")
        finally:
            meeting.close()
            await self._close(link_id)

    async def _close(self, link_id: str) -> None:
        """The link, if there is one: what callers leave behind is no leak of the node's."""
        try:
            await self._stub.CloseLink(tensor_pb2.CloseLinkRequest(link_id=link_id), timeout=5)
        except grpc.aio.AioRpcError as error:
            # It may have ended with what was said on it.
            self._tally.ended(SERVICE, error.code().name, reason_of(error))

    async def _proposed(self, link_id: str, meeting: Meeting) -> socket.socket:
        """The agent's socket, once it came. Raises `TimeoutError`, `grpc.aio.AioRpcError`."""
        came = asyncio.Event()

        async def said() -> AsyncIterator[tensor_pb2.StreamTensorsRequest]:
            wire = tensor_pb2
            opening = wire.StreamOpening(link_id=link_id)
            yield wire.StreamTensorsRequest(opening=opening)
            for step in (wire.ROAD_STEP_PROPOSE, wire.ROAD_STEP_READY):
                road = wire.RoadMessage(
                    generation=1,
                    step=step,
                    transport=placement_pb2.TRANSPORT_LOCAL,
                    nonce=bytes(32),
                    terms={
                        "host": host_digest(),
                        "socket": meeting.address,
                        "piece_bytes": str(PIECES.piece_bytes),
                        "slot_count": str(PIECES.slot_count),
                    },
                )
                yield wire.StreamTensorsRequest(road=road)
            async with asyncio.timeout(WAIT_SECONDS):
                await came.wait()

        self._stream = self._stub.StreamTensors(said(), timeout=2 * WAIT_SECONDS)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await meeting.next_comer()
        finally:
            came.set()

    async def meet(self, comer: socket.socket) -> None:
        """Answers the agent's proof with a descriptor, or without, and with frames."""
        loop = asyncio.get_running_loop()
        rng = self._rng
        handed = self._descriptors()
        try:
            # The agent leaves as soon as it sees what it was given.
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS):
                    await loop.sock_recv(comer, PROOF_BYTES)
                socket.send_fds(comer, [rng.randbytes(rng.choice((1, 1, 2, 40)))], handed)
                for descriptor in handed:
                    if rng.random() < 0.5:
                        os.truncate(descriptor, rng.choice((0, 1, 1 << 20)))
                for _ in range(rng.randint(0, MOST_FRAMES)):
                    await loop.sock_sendall(comer, rng.randbytes(rng.choice((1, 8, 8, 64))))
            self._tally.sent(SERVICE)
            self._tally.ended(SERVICE, f"{len(handed)} descriptors")
        finally:
            comer.close()
            for descriptor in handed:
                os.close(descriptor)
            self._stream.cancel()

    def _descriptors(self) -> Sequence[int]:
        """None, one or several: sealed, not sealed, of another size, or not of memory at all."""
        rng = self._rng
        found = []
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            if rng.random() < 0.1:
                found.append(os.open(os.devnull, os.O_RDWR))
                continue
            descriptor = anonymous_file(None)
            os.truncate(descriptor, rng.choice((PIECES.segment_bytes,) * 3 + (0, 4096)))
            if rng.random() < 0.5:
                seal(descriptor)
            found.append(descriptor)
        return found

"""Where roads may go: a ring of a fleet with an authority stays in its host, memory in its user."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.node.config.config import is_loopback
from kakeya_fleet.node.links.protocol.contract import LinkMode, RoadKind
from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.links.protocol.tensor import from_buffer
from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.roads.host_roads import RingProbe, road_builders
from kakeya_fleet.node.links.roads.meeting import Meeting, connected
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from tests.support import linked_pairs, road_pairs

MIB = 1 << 20
NONCE = secrets.token_bytes(32)
NOBODY = 65_534
"""A user who owns nothing."""
STRANGER = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1]);"
    "print('there', flush=True); print(len(s.recv(1)), flush=True)"
)


async def test_a_ring_within_its_host_listens_on_loopback_alone() -> None:
    plan = await RingRoads("0.0.0.0", within_host=True).propose(NONCE)
    assert is_loopback(parse_address(plan.terms["address"])[0])
    await plan.abandon()


@pytest.mark.parametrize(
    "said",
    [
        {"host": "f" * 64},
        {"host": ""},
        # It knows where this is, and would have the tensors all the same.
        {"address": "192.0.2.7:4000"},
    ],
)
async def test_a_ring_within_its_host_goes_to_no_other(said: dict[str, str]) -> None:
    builder = RingRoads("127.0.0.1", within_host=True)
    async with road_pairs.leaves_nothing():
        caller, other = await road_pairs.plans(builder)
        with pytest.raises(RoadFailed, match="in the clear: start both"):
            await builder.answer(NONCE, {**caller.terms, **said})
        with pytest.raises(RoadFailed, match="in the clear: start both"):
            await caller.build({**other.terms, **said})
        await other.abandon()


async def test_a_ring_on_a_trusted_network_says_nothing_of_its_host() -> None:
    """What it says is as in a fleet without an authority, and goes where it is told."""
    builder = RingRoads("127.0.0.1")
    plan = await builder.propose(NONCE)
    assert set(plan.terms) == {"address"}
    answered = await builder.answer(NONCE, {"address": "192.0.2.7:4000"})
    for each in (plan, answered):
        await each.abandon()


@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")
async def test_two_nodes_of_one_host_have_their_ring() -> None:
    async with road_pairs.leaves_nothing():
        near, far = await road_pairs.pair(RingRoads("192.0.2.7", within_host=True))
        data = road_pairs.bytes_of(MIB)
        assert road_pairs.same(await road_pairs.carry(near, far, data), data)
        await near.close()
        await far.close()


@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")
@pytest.mark.skipif(sys.platform != "linux", reason="loopback has one address")
async def test_who_calls_its_port_at_the_usual_address_is_not_its_peer() -> None:
    """A node that went may have had it, and is still called by those who do not know."""

    async def calls(port: int) -> None:
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                held.append(await asyncio.open_connection("127.0.0.1", port))
            await asyncio.sleep(0.005)

    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with road_pairs.leaves_nothing():
        caller, other = await road_pairs.plans(RingRoads("127.0.0.1"))
        calling = asyncio.ensure_future(calls(parse_address(other.terms["address"])[1]))
        for end in await road_pairs.outcomes(caller, other):
            assert not isinstance(end, BaseException), end
            await end.close()
        calling.cancel()
    assert not held


def test_what_is_configured_is_built() -> None:
    for within_host in (False, True):
        built = road_builders("ring", "10.0.0.1", RingProbe(), within_host=within_host)
        (ring,) = [each for each in built if isinstance(each, RingRoads)]
        assert ring.within_host is within_host


def test_a_meeting_in_a_file_is_this_users_alone() -> None:
    with tempfile.TemporaryDirectory(prefix="kk-") as folder:
        meeting = Meeting(Path(folder))
        assert Path(meeting.address).stat().st_mode & 0o077 == 0
        meeting.close()


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can be somebody else"
)
async def test_another_users_process_is_not_met() -> None:
    meeting = Meeting(None)
    stranger = await asyncio.create_subprocess_exec(
        "/usr/bin/env",
        "python3",
        "-c",
        STRANGER,
        meeting.address[1:],
        user=NOBODY,
        stdout=asyncio.subprocess.PIPE,
    )
    assert stranger.stdout is not None
    assert await stranger.stdout.readline() == b"there\n"
    own = await connected(meeting.address)
    comer = await meeting.next_comer()
    own.sendall(b"own")
    assert comer.recv(3) == b"own"
    # It was there first, and was given nothing.
    assert await stranger.stdout.readline() == b"0\n"
    assert await stranger.wait() == 0
    for each in (own, comer):
        each.close()
    meeting.close()


async def test_a_link_that_may_have_no_ring_says_why_at_both_ends_and_goes_on() -> None:
    # The caller trusts the network, the other node does not.
    builders = RingRoads("127.0.0.1"), RingRoads("127.0.0.1", within_host=True)
    hosts = [linked_pairs.Host((each,), LinkMode.RING, LinkSettings()) for each in builders]
    async with road_pairs.leaves_nothing():
        link = linked_pairs.InMemory.between(*hosts)
        await road_pairs.until(lambda: all("in the clear" in end.state.reason for end in link.ends))
        assert {end.state.kind for end in link.ends} == {RoadKind.GRPC}
        data = np.arange(MIB, dtype=np.uint8)
        await link.ends[0].send(from_buffer("t", "int8", (MIB,), data.data, 0))
        assert bytes((await link.ends[1].receive()).data) == data.tobytes()
        await link.close()

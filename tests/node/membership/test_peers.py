from collections.abc import AsyncIterator

import grpc.aio
import pytest

from kakeya_fleet.node.membership import peers as peers_module
from kakeya_fleet.node.membership.peers import Peers


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    peers = Peers()
    yield peers
    await peers.close()


async def test_one_channel_an_address(peers: Peers) -> None:
    assert peers.channel("127.0.0.1:1") is peers.channel("127.0.0.1:1")
    assert peers.channel("127.0.0.1:1") is not peers.channel("127.0.0.1:2")


async def test_round_trip_is_the_least_of_the_last_16(peers: Peers) -> None:
    assert peers.round_trip("a") is None
    for seconds in (0.001, *[0.005] * 15):
        peers.record_round_trip("a", seconds, "h:1")
    assert peers.round_trip("a") == 0.001
    peers.record_round_trip("a", 0.004, "h:1")
    assert peers.round_trip("a") == 0.004


async def test_round_trips_are_of_the_way_that_is_used(peers: Peers) -> None:
    assert peers.way("a") == ""
    peers.record_round_trip("a", 0.001, "h:1")
    peers.record_round_trip("a", 0.030, "h:2")
    assert (peers.way("a"), peers.round_trip("a")) == ("h:2", 0.030)


async def test_a_channel_that_began_elsewhere_is_opened_anew(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {"192.0.2.1:1": "198.51.100.7", "192.0.2.2:1": "198.51.100.7"}
    monkeypatch.setattr(peers_module, "source_towards", sources.__getitem__)
    moved, kept = peers.channel("192.0.2.1:1"), peers.channel("192.0.2.2:1")
    sources["192.0.2.1:1"] = "198.51.100.8"
    await peers.reroute()
    assert moved.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert peers.channel("192.0.2.1:1") is not moved
    assert peers.channel("192.0.2.2:1") is kept


async def test_nobody_gets_a_channel_that_is_about_to_be_closed(
    peers: Peers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = peers.channel("127.0.0.1:1"), peers.channel("127.0.0.1:2")
    got = []

    async def close() -> None:
        got.append(peers.channel("127.0.0.1:2"))

    monkeypatch.setattr(first, "close", close)
    await peers.reopen()
    assert second.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert got[0] is not second
    assert got[0].get_state() is not grpc.ChannelConnectivity.SHUTDOWN


async def test_an_address_is_kept_until_it_fails(peers: Peers) -> None:
    addresses = ("h:1", "h:2", "h:3")
    assert [peers.choose("a", addresses) for _ in range(2)] == ["h:1", "h:1"]
    peers.failed("a", "h:1", addresses)
    assert peers.choose("a", addresses) == "h:2"
    # A second call to it that fails later gives up nothing else.
    peers.failed("a", "h:1", addresses)
    assert peers.choose("a", addresses) == "h:2"
    peers.failed("a", "h:2", addresses)
    peers.failed("a", "h:3", addresses)
    assert peers.choose("a", addresses) == "h:1"
    assert peers.choose("a", ("h:9",)) == "h:9"


async def test_prune_closes_and_forgets_all_others(peers: Peers) -> None:
    kept, dropped = peers.channel("127.0.0.1:1"), peers.channel("127.0.0.1:2")
    peers.record_round_trip("a", 0.1, "127.0.0.1:1")
    peers.record_round_trip("b", 0.1, "127.0.0.1:2")
    await peers.prune({"127.0.0.1:1"}, {"a"})
    assert kept.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    assert dropped.get_state() is grpc.ChannelConnectivity.SHUTDOWN
    assert peers.channel("127.0.0.1:2") is not dropped
    assert (peers.round_trip("a"), peers.round_trip("b")) == (0.1, None)

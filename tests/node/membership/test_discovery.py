import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kakeya_fleet.node.membership.announcement import Announcement
from kakeya_fleet.node.membership.discovery import Discovery
from kakeya_fleet.node.membership.network import addresses_of, multicast_fault
from tests.node.conftest import StartAgent
from tests.support.calls import until

ONE, OTHER = "aa" * 32, "bb" * 32


def announcement(node_id: str, fleet_name: str, port: int) -> Announcement:
    return Announcement(node_id, fleet_name, ("127.0.0.1",), port)


@pytest.fixture
def _loopback_multicast() -> None:
    fault = multicast_fault("127.0.0.1")
    if fault is not None:
        pytest.skip(fault)


Discover = Callable[[Announcement], Awaitable[asyncio.Queue[str]]]


@pytest.fixture
async def discover() -> AsyncIterator[Discover]:
    """discover(announcement): a queue of the addresses that it finds."""
    running: list[tuple[Discovery, asyncio.Task[None]]] = []

    async def start(own: Announcement) -> asyncio.Queue[str]:
        discovery = Discovery(own)
        discovery.open()
        assert discovery.fault is None
        found: asyncio.Queue[str] = asyncio.Queue()
        running.append((discovery, asyncio.ensure_future(discovery.run(found.put_nowait))))
        return found

    yield start
    for discovery, task in running:
        task.cancel()
        await asyncio.wait({task})
        await discovery.close()


@pytest.mark.usefixtures("_loopback_multicast")
async def test_two_nodes_find_each_other_and_neither_another_fleet_nor_themselves(
    discover: Discover, fleet_name: str
) -> None:
    await discover(announcement("cc" * 32, f"{fleet_name}-2", 7103))
    one = await discover(announcement(ONE, fleet_name, 7101))
    other = await discover(announcement(OTHER, fleet_name, 7102))
    async with asyncio.timeout(30):
        assert await one.get() == "127.0.0.1:7102"
        assert await other.get() == "127.0.0.1:7101"
    assert one.empty()
    assert other.empty()


@pytest.mark.usefixtures("_loopback_multicast")
async def test_agents_meet_without_a_seed(start_agent: StartAgent) -> None:
    one = await start_agent("a", mdns=True)
    other = await start_agent("b", mdns=True)
    assert (one.ready["mdns"], other.ready["mdns"]) == ("on", "on")
    await one.events.wait_for("peer_joined", node_id=other.node_id)
    await other.events.wait_for("peer_joined", node_id=one.node_id)


async def test_an_interface_that_refuses_is_named_and_costs_nothing_else() -> None:
    discovery = Discovery(Announcement(ONE, "fleet", ("192.0.2.77",), 7101))
    discovery.open()
    assert discovery.fault is not None
    assert "192.0.2.77" in discovery.fault
    running = asyncio.ensure_future(discovery.run(lambda address: None))
    discovery.move(("192.0.2.78",))
    await until(lambda: "192.0.2.78" in (discovery.fault or ""))
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    await discovery.close()


async def test_an_agent_without_ipv4_says_why_it_is_not_found() -> None:
    discovery = Discovery(Announcement(ONE, "fleet", ("::1",), 7101))
    discovery.open()
    assert discovery.fault is not None
    assert "IPv4" in discovery.fault
    await discovery.close()


def test_addresses_of_a_bind() -> None:
    assert addresses_of("127.0.0.1") == ("127.0.0.1",)
    assert addresses_of("::1") == ("::1",)
    assert "127.0.0.1" in addresses_of("localhost")
    every = addresses_of("0.0.0.0")
    assert every
    assert "0.0.0.0" not in every

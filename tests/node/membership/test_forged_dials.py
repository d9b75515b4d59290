"""Whom a node calls, and whom it tells programs to call, after a gossip of forged cards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp
import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role, SignedCard
from kakeya_fleet.fleet.cards.rules import MAX_ADDRESSES
from kakeya_fleet.fleet.membership.events import Effect, Event, Tick
from kakeya_fleet.fleet.membership.membership import step
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.fleet.membership.suspicion import rounds_to_suspicion
from kakeya_fleet.node.admission.limits import MembershipLimits
from kakeya_fleet.node.membership import gossip
from kakeya_fleet.node.membership.card_wire import signed_to_wire
from kakeya_fleet.node.membership.exchange_client import ExchangeClient
from tests.node.conftest import (
    Eventually,
    MakeCard,
    MakeIdentity,
    RunningAgent,
    Scrape,
    StartAgent,
)

FORGED = 30
NGRAM = ModelOffer("ngram", Role.PROPOSER, ModelKind.NGRAM)
"""Who serves it is called at once in fleets of any size."""
ALL_BURIED = f'kakeya_members{{liveness="dead"}} {FORGED}.0'


@dataclass
class Victims:
    """Ports that nobody of the fleet listens at, and the connections that came."""

    ports: list[int]
    connection_count: int = 0


@asynccontextmanager
async def victims(count: int) -> AsyncIterator[Victims]:
    found = Victims([])

    def came(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Closed at once: a channel that is left open would come again by itself.
        found.connection_count += 1
        writer.close()

    servers = [await asyncio.start_server(came, "127.0.0.1", 0) for _ in range(count)]
    found.ports = [server.sockets[0].getsockname()[1] for server in servers]
    yield found
    for server in servers:
        server.close()
        await server.wait_closed()


async def tell(agent: RunningAgent, fleet_name: str, *cards: SignedCard) -> list[str]:
    """Has a stranger send these cards; the rules by which some are skipped."""
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    request = capability_pb2.ExchangeCapabilitiesRequest(
        fleet_name=fleet_name,
        protocol_min=1,
        protocol_max=1,
        cards=[signed_to_wire(card) for card in cards],
    )
    return [each.reason for each in (await stub.ExchangeCapabilities(request)).skipped]


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of all calls to other nodes that begin from now on, whatever comes of them."""
    begun: list[str] = []
    exchange, ping, probe = ExchangeClient.exchange, ExchangeClient.ping, ExchangeClient.probe

    def counting(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(client: ExchangeClient, address: str, *rest: object) -> object:
            begun.append(address)
            return await call(client, address, *rest)

        return counted

    for name, call in (("exchange", exchange), ("ping", ping), ("probe", probe)):
        monkeypatch.setattr(ExchangeClient, name, counting(call))
    return begun


async def test_forged_cards_cause_a_call_each_and_no_more_than_the_gossips_own(
    start_agent: StartAgent,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    scrape: Scrape,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first card until all are buried; 30 cards with 16 ports each of the attacker's."""
    assert MembershipLimits().dial_burst >= FORGED
    ticks = 0

    def counted(state: Membership, event: Event, now: float, rng: Random) -> tuple[Effect, ...]:
        nonlocal ticks
        ticks += isinstance(event, Tick)
        return step(state, event, now, rng)

    monkeypatch.setattr(gossip, "step", counted)
    begun = count_calls(monkeypatch)
    agent = await start_agent("a", period_seconds=0.02)
    async with victims(FORGED) as there:
        cards = [
            make_card(
                make_identity(),
                fleet_name=fleet_name,
                addresses=tuple(
                    f"127.0.0.1:{there.ports[(index + turn) % FORGED]}"
                    for turn in range(MAX_ADDRESSES)
                ),
                models=(NGRAM,),
            )
            for index in range(FORGED)
        ]
        ticks = 0
        assert await tell(agent, fleet_name, *cards) == []

        async def all_buried() -> bool:
            return ALL_BURIED in await scrape(str(agent.ready["metrics_address"]))

        await eventually(all_buried)
        # A call each at first. Then a tick is one newcomer's turn: as many calls as it takes to
        # suspect it, also where ticks came late and what was found before does not count.
        a_tick = rounds_to_suspicion(FORGED + 1)
        bound = FORGED + a_tick * ticks
        assert 0 < there.connection_count <= bound, f"{there.connection_count} in {ticks} ticks"
        await agent.stop()
        # No channel comes again by itself.
        assert there.connection_count <= len(begun)


async def test_in_a_large_fleet_those_who_serve_nothing_are_called_in_their_turn(
    start_agent: StartAgent,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    eventually: Eventually,
) -> None:
    agent = await start_agent("a", period_seconds=60.0)
    async with victims(gossip.SMALL_FLEET) as idle, victims(1) as serving:

        def card(port: int, *models: ModelOffer) -> SignedCard:
            addresses = (f"127.0.0.1:{port}",)
            return make_card(
                make_identity(), fleet_name=fleet_name, addresses=addresses, models=models
            )

        cards = [*map(card, idle.ports), card(serving.ports[0], NGRAM)]
        assert await tell(agent, fleet_name, *cards) == []

        async def called() -> bool:
            return serving.connection_count > 0

        # All that is called at once is called together, and this one last.
        await eventually(called)
        assert idle.connection_count == 0


async def test_in_a_small_fleet_all_are_called_at_once(
    start_agent: StartAgent,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    eventually: Eventually,
) -> None:
    agent = await start_agent("a", period_seconds=60.0)
    async with victims(1) as idle:
        own = make_card(
            make_identity(), fleet_name=fleet_name, addresses=(f"127.0.0.1:{idle.ports[0]}",)
        )
        assert await tell(agent, fleet_name, own) == []

        async def called() -> bool:
            return idle.connection_count > 0

        await eventually(called)


async def test_programs_are_told_of_no_address_that_is_not_near(
    start_agent: StartAgent, make_card: MakeCard, make_identity: MakeIdentity, fleet_name: str
) -> None:
    agent = await start_agent("a")
    hosts = ("169.254.169.254", "[fe80::1]", "8.8.8.8", "224.0.0.1", "metadata.internal")
    forged = [
        make_card(
            make_identity(),
            fleet_name=fleet_name,
            name=f"forged-{index}",
            addresses=("127.0.0.1:1",),
            http_address=f"{host}:80",
        )
        for index, host in enumerate(hosts)
    ]
    near = make_card(
        make_identity(),
        fleet_name=fleet_name,
        name="near",
        addresses=("127.0.0.1:1",),
        http_address="127.0.0.1:2",
    )
    assert await tell(agent, fleet_name, *forged, near) == []
    own = str(agent.ready["http_address"])
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{own}/sd/prometheus") as answer,
    ):
        groups = await answer.json()
    assert {target for group in groups for target in group["targets"]} == {own, "127.0.0.1:2"}

"""A node's parts, and how those of one run are made from them and know of each other."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import grpc.aio

from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.node.app.agent_events import AgentEvents
from kakeya_fleet.node.app.node_report import NodeReport
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.config.config import (
    Config,
    is_loopback,
    join_address,
    require_answerable,
    split_address,
)
from kakeya_fleet.node.config.machine import machine, memory_free_bytes
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.http.server import HttpServer
from kakeya_fleet.node.membership.card_maker import CardFacts, CardMaker
from kakeya_fleet.node.membership.discovery import Announcement, Discovery
from kakeya_fleet.node.membership.identity import Identity, verifies
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.seed_watch import SeedWatch
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.doings import Doings
from kakeya_fleet.node.watch.node_watch import NodeWatch


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What the agent made and closes again; the server is bound.

    The roles know what they will load, and `load` loads it.
    """

    config: Config
    state: StateDirectory
    identity: Identity
    metrics: NodeMetrics
    roles: Roles
    server: grpc.aio.Server
    doings: Doings
    load: Callable[[], Coroutine[None, None, None]]
    http: HttpServer | None = None


@dataclass(frozen=True, slots=True)
class Wired:
    """The parts of one run, at its addresses; `addresses` are host:port of `hosts`."""

    hosts: tuple[str, ...]
    addresses: tuple[str, ...]
    port: int
    card_maker: CardMaker
    membership: Membership
    known: KnownFleet
    report: NodeReport
    node_watch: NodeWatch
    events: AgentEvents
    discovery: Discovery


def wire(parts: NodeParts, peers: Peers, seeds: SeedWatch, incarnation: int, port: int) -> Wired:
    """Makes them; raises `LoopbackBind` when the bind address is a name of loopback.

    Nothing is opened but multicast DNS, unless the configuration forbids it.
    """
    config, identity = parts.config, parts.identity
    hosts = addresses_of(config.bind_address[0])
    require_answerable(hosts, config.peers)
    addresses = tuple(join_address(each, port) for each in hosts)
    card_maker = _card_maker(parts, incarnation, addresses)
    membership = _membership(card_maker, config.period_seconds)
    known = KnownFleet(membership.registry, peers, time.monotonic)
    http_address = parts.http.address if parts.http else ""
    report = NodeReport(known, parts.roles, seeds, http_address, time.time())
    node_watch = NodeWatch(report, parts.doings, parts.metrics)
    parts.roles.session_watch.on_change = node_watch.changed
    discovery = Discovery(Announcement(identity.node_id, config.fleet_name, hosts, port))
    if config.mdns:
        discovery.open()
    return Wired(
        hosts=hosts,
        addresses=addresses,
        port=port,
        card_maker=card_maker,
        membership=membership,
        known=known,
        report=report,
        node_watch=node_watch,
        events=AgentEvents(
            identity.node_id, config.name, config.fleet_name, addresses[0], http_address
        ),
        discovery=discovery,
    )


def _card_maker(parts: NodeParts, incarnation: int, addresses: tuple[str, ...]) -> CardMaker:
    facts = CardFacts(
        name=parts.config.name,
        fleet_name=parts.config.fleet_name,
        boot_id=secrets.token_hex(16),
        addresses=addresses,
        machine=machine(),
        memory_free_bytes=memory_free_bytes(),
        models=parts.roles.offers(),
        archive=parts.roles.archive_offer(),
        loading=bool(parts.roles.awaited()),
        http_address=_http_on_card(parts, addresses),
    )
    return CardMaker(parts.identity, parts.state, facts, incarnation, time.time)


def _http_on_card(parts: NodeParts, addresses: tuple[str, ...]) -> str:
    """Where others find HTTP; a node that only its own machine reaches tells that one."""
    bound = parts.config.http_address
    if parts.http is None or bound is None:
        return ""
    stays_here = all(is_loopback(split_address("bind", each)[0]) for each in addresses)
    return parts.http.address if stays_here or not is_loopback(bound[0]) else ""


def _membership(card_maker: CardMaker, period_seconds: float) -> Membership:
    registry = Registry(card_maker.current, verifies, now=time.monotonic())
    settings = MembershipSettings(
        period_seconds=period_seconds,
        exchange_timeout_seconds=period_seconds / 2,
        probe_timeout_seconds=period_seconds / 2,
        dial_seconds=10 * period_seconds,
    )
    return Membership(registry, settings)

"""The addresses of the agent's card, and the ways out to peers."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from functools import partial

from kakeya import KakeyaError, Timeouts
from kakeya_fleet.fleet.diagnosis import addresses
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.fleet.diagnosis.reach import Answer
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.membership.network import is_own_address
from kakeya_fleet.node.membership.seed_diagnosis import Presence, look

_TIMEOUTS = Timeouts(connect=ANSWER_SECONDS, unary=ANSWER_SECONDS)


async def check(site: Site) -> list[Finding]:
    """Calls each address of the card, and asks the kernel for the way to each peer."""
    if site.node is None:
        return [not_run(addresses.CHECK, site.absence)]
    if site.agent is None:
        cause = f"{site.node.card.name} is not an agent of this user on this machine."
        return [not_run(addresses.CHECK, cause)]
    card = site.node.card
    hosts = {split_address("address", each)[0] for each in card.addresses}
    own = await asyncio.gather(*map(partial(_of_card, Callers(site.address)), card.addresses))
    routes = await asyncio.gather(
        *(in_thread(partial(_route, peer.name, peer.address, hosts)) for peer in site.peers)
    )
    return addresses.addresses(own, routes)


async def _of_card(callers: Callers, address: str) -> addresses.CardAddress:
    host, _ = split_address("address", address)
    if not is_own_address(host):
        return addresses.CardAddress(address, is_here=False)
    try:
        async with callers.client(address, _TIMEOUTS) as client:
            await client.fleet.node()
        return addresses.CardAddress(address, is_here=True)
    except KakeyaError:
        presence = await look(address)
    fault = "" if presence is Presence.GRPC else presence.value
    return addresses.CardAddress(address, is_here=True, fault=fault)


def _route(peer: str, address: str, hosts: set[str]) -> addresses.Route:
    """UDP sends nothing when it connects: the kernel chooses the way, and the source with it."""
    host, port = split_address("address", address)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            source = str(probe.getsockname()[0])
    except socket.gaierror:
        return addresses.Route(peer, address, fault=Answer.NO_NAME.value)
    except OSError as error:
        return addresses.Route(peer, address, fault=error.strerror or str(error))
    # On one machine any address leads back.
    is_near = is_own_address(str(target[0]))
    is_on_card = is_near or ipaddress.ip_address(source.partition("%")[0]) in {
        ipaddress.ip_address(each) for each in hosts
    }
    return addresses.Route(peer, address, source, is_on_card=is_on_card)

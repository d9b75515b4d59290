"""Sends and hears multicast DNS on each interface, as nodes do when they look for each other."""

from __future__ import annotations

import asyncio
import secrets
import socket

import psutil
import zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from kakeya_fleet.fleet.diagnosis import multicast
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.fleet.diagnosis.multicast import Interface
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.site import Site
from kakeya_fleet.node.cli.terminal.printable import on_one_line
from kakeya_fleet.node.membership.multicast import SERVICE
from kakeya_fleet.node.membership.network import is_own_address, multicast_fault

# Nobody looks for it but the doctor that announces it.
_OWN_SERVICE = "_kakeya-doctor._tcp.local."
HEARING_SECONDS = 1.5
"""Responders wait up to 0.12 s before they answer (RFC 6762, 6); nodes are listened for as long."""
MOST_INTERFACES = 8


async def check(_site: Site) -> list[Finding]:
    """Looks at each IPv4 address that is not loopback: on those nodes announce themselves."""
    here = (await in_thread(_addresses))[:MOST_INTERFACES]
    if not here:
        return [not_run(multicast.CHECK, "This machine has no IPv4 address but loopback.")]
    return multicast.multicast(await asyncio.gather(*(hear(*each) for each in here)))


def _addresses() -> list[tuple[str, str]]:
    """Pairs of IPv4 address and interface, of those that are up."""
    statistics = psutil.net_if_stats()
    return [
        (entry.address, name)
        for name, entries in psutil.net_if_addrs().items()
        if name in statistics and statistics[name].isup
        for entry in entries
        if entry.family is socket.AF_INET and not entry.address.startswith("127.")
    ]


async def hear(address: str, name: str) -> Interface:
    """What of multicast DNS works on the interface `name` of an IPv4 address."""
    fault = multicast_fault(address)
    if fault is not None:
        return Interface(address, name, fault)
    try:
        async with (
            AsyncZeroconf(interfaces=[address]) as speaker,
            AsyncZeroconf(interfaces=[address]) as listener,
        ):
            return await _between(speaker, listener, address, name)
    except (zeroconf.Error, OSError) as error:
        return Interface(address, name, f"multicast DNS failed ({type(error).__name__}: {error})")


async def _between(
    speaker: AsyncZeroconf, listener: AsyncZeroconf, address: str, name: str
) -> Interface:
    """Announces a service of its own on one socket, and asks for it from another."""
    found: dict[str, AsyncServiceInfo] = {}
    token = secrets.token_hex(8)

    def heard(
        zeroconf: zeroconf.Zeroconf,  # noqa: ARG001 the browser calls by name
        service_type: str,  # noqa: ARG001
        name: str,
        state_change: zeroconf.ServiceStateChange,  # noqa: ARG001
    ) -> None:
        found[name] = AsyncServiceInfo(SERVICE, name)

    browser = AsyncServiceBrowser(listener.zeroconf, SERVICE, handlers=[heard])
    own = AsyncServiceInfo(
        _OWN_SERVICE,
        f"{token}.{_OWN_SERVICE}",
        parsed_addresses=[address],
        port=9,
        server=f"kakeya-doctor-{token}.local.",
    )
    asked = AsyncServiceInfo(_OWN_SERVICE, own.name)
    try:
        await speaker.async_register_service(own, cooperating_responders=True)
        is_heard, _ = await asyncio.gather(
            asked.async_request(listener.zeroconf, HEARING_SECONDS * 1000),
            asyncio.sleep(HEARING_SECONDS),
        )
    finally:
        await browser.async_cancel()
    others = [on_one_line(each) for each, info in found.items() if _is_elsewhere(info, listener)]
    return Interface(address, name, is_heard=is_heard, others=tuple(sorted(others)))


def _is_elsewhere(info: AsyncServiceInfo, listener: AsyncZeroconf) -> bool:
    """Whether what was heard of a node places it on another machine."""
    info.load_from_cache(listener.zeroconf)
    addresses = info.parsed_addresses()
    return bool(addresses) and not any(map(is_own_address, addresses))

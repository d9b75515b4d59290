"""macOS's Local Network permission, as seen by calls to peers. Untested: no Mac was at hand."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import platform
import socket
from functools import partial

from kakeya_fleet.fleet.diagnosis import local_network
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.fleet.diagnosis.local_network import LocalCall
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.membership.network import is_own_address

FIRST_MACOS = 15
"""Asks people for that permission."""


async def check(site: Site) -> list[Finding]:
    """Connects to each peer of a private network, and sees how it is refused."""
    if platform.system() != "Darwin":
        return [not_run(local_network.CHECK, "It is a permission of macOS.")]
    release = platform.mac_ver()[0].partition(".")[0]
    if release.isdecimal() and int(release) < FIRST_MACOS:
        return [not_run(local_network.CHECK, f"macOS {release} has no such permission.")]
    if os.geteuid() == 0:
        return [not_run(local_network.CHECK, "A program of root needs no such permission.")]
    near = [peer.address for peer in site.peers if _is_near(peer.address)]
    if not near:
        return [not_run(local_network.CHECK, "No peer of this machine's networks is known.")]
    calls = await asyncio.gather(*(in_thread(partial(_call, address)) for address in near))
    return [local_network.local_network(calls)]


def _is_near(address: str) -> bool:
    """Whether it is an IP address of a private or link-local network, and not of this machine."""
    host, _ = split_address("address", address)
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host.endswith(".local")
    return ip.is_private and not is_own_address(host)


def _call(address: str) -> LocalCall:
    host, port = split_address("address", address)
    try:
        entry = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(entry[0], socket.SOCK_DGRAM) as probe:
            probe.connect(entry[4])
    except OSError:
        return LocalCall(address, has_route=False, is_host_unreachable=False)
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS):
            return LocalCall(address, has_route=True, is_host_unreachable=False)
    except OSError as error:
        is_refused = error.errno == errno.EHOSTUNREACH
        return LocalCall(address, has_route=True, is_host_unreachable=is_refused)

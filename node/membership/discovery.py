"""Finding nodes by multicast DNS (RFC 6762, RFC 6763), on the bound interfaces alone.

What it finds are hints: an address at which a node of this fleet may answer.
Who it is, and whether its card is good, is decided by the exchange that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog
import zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX
from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.membership.network import multicast_fault

SERVICE = "_kakeya._tcp.local."
# A network can name more services than a fleet has nodes: the rest waits for the next answer.
_QUEUE = 64
_RESOLVE_MS = 3000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a node says of itself by multicast DNS. `addresses` are IPs."""

    node_id: str
    fleet_name: str
    addresses: tuple[str, ...]
    port: int


class Discovery:
    """Announces this node and looks for others. `fault` says why it does not."""

    def __init__(self, announcement: Announcement) -> None:
        self._own = announcement
        self._names: asyncio.Queue[str] = asyncio.Queue(_QUEUE)
        self._zeroconf: AsyncZeroconf | None = None
        self._moved = asyncio.Event()
        self.fault: str | None = None

    def open(self) -> None:
        """Opens the sockets. Never raises for a network that does not allow it."""
        self.fault = None
        four = [address for address in self._own.addresses if ":" not in address]
        if not four:
            self.fault = "the node is not bound to an IPv4 address"
        faults = {address: multicast_fault(address) for address in four}
        usable = [address for address, fault in faults.items() if fault is None]
        if four and not usable:
            self.fault = "; ".join(fault for fault in faults.values() if fault)
        if usable:
            try:
                self._zeroconf = AsyncZeroconf(interfaces=list(usable))
            except OSError as error:
                self.fault = f"multicast DNS cannot listen ({error.strerror})"
        if self.fault is not None:
            _log.warning("mdns_off", reason=self.fault)

    def move(self, addresses: tuple[str, ...]) -> None:
        """The node answers at these IPs from now on, where it was opened."""
        self._own = replace(self._own, addresses=addresses)
        self._moved.set()

    async def run(self, found: Callable[[str], None]) -> None:
        """Announces, and calls `found` with each host:port of this fleet, until cancelled."""
        while True:
            serving = asyncio.ensure_future(self._serve(found))
            try:
                await self._moved.wait()
            finally:
                serving.cancel()
                await asyncio.wait((serving,))
            # Its sockets are of interfaces and addresses that may be gone.
            await self.close()
            self._moved.clear()
            self.open()

    async def _serve(self, found: Callable[[str], None]) -> None:
        if self._zeroconf is None:
            return
        browser = None
        try:
            await self._announce(self._zeroconf)
            browser = AsyncServiceBrowser(
                self._zeroconf.zeroconf, SERVICE, handlers=[self._on_change]
            )
            while True:
                await self._resolve(self._zeroconf, await self._names.get(), found)
        except (zeroconf.Error, OSError) as error:
            self.fault = f"multicast DNS failed ({type(error).__name__}: {error})"
            _log.warning("mdns_off", reason=self.fault)
        finally:
            if browser is not None:
                await browser.async_cancel()

    async def close(self) -> None:
        """Says goodbye and closes the sockets."""
        multicast, self._zeroconf = self._zeroconf, None
        if multicast is not None:
            await multicast.async_unregister_all_services()
            await multicast.async_close()

    async def _announce(self, multicast: AsyncZeroconf) -> None:
        info = AsyncServiceInfo(
            SERVICE,
            f"{self._own.node_id[:32]}.{SERVICE}",
            parsed_addresses=list(self._own.addresses),
            port=self._own.port,
            server=f"kakeya-{self._own.node_id[:16]}.local.",
            properties={
                "node_id": self._own.node_id,
                "fleet": self._own.fleet_name,
                "version": str(PROTOCOL_MAX),
            },
        )
        await multicast.async_register_service(info)

    def _on_change(
        self,
        zeroconf: zeroconf.Zeroconf,  # noqa: ARG002 the browser calls by name
        service_type: str,  # noqa: ARG002
        name: str,
        state_change: zeroconf.ServiceStateChange,
    ) -> None:
        if state_change is not _REMOVED and not self._names.full():
            self._names.put_nowait(name)

    async def _resolve(
        self, multicast: AsyncZeroconf, name: str, found: Callable[[str], None]
    ) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(multicast.zeroconf, _RESOLVE_MS):
            return
        facts = info.decoded_properties
        if facts.get("fleet") != self._own.fleet_name or info.port is None:
            return
        if facts.get("node_id") in (None, self._own.node_id):
            return
        for address in info.parsed_addresses():
            found(join_address(address, info.port))


_REMOVED = zeroconf.ServiceStateChange.Removed

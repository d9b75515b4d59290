"""Finding open invitations by multicast DNS (RFC 6762, RFC 6763).

What is announced is the nameplate, which is no secret, and where to go. What is found is a hint:
whether a node there has the invitation is decided by the exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

import structlog
import zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.membership.network import multicast_fault

SERVICE = "_kakeya-join._tcp.local."
MOST_ADDRESSES = 8
_QUEUE = 64
_RESOLVE_MS = 3000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FoundIssuer:
    """A node that says it has the invitation; `addresses` are host:port, at most eight."""

    node_id: str
    addresses: tuple[str, ...]


def open_multicast(addresses: Iterable[str]) -> tuple[AsyncZeroconf | None, str]:
    """The sockets on the interfaces of these IPs that do multicast, or why there are none."""
    four = [address for address in addresses if ":" not in address]
    if not four:
        return None, "there is no IPv4 address to announce on"
    faults = {address: multicast_fault(address) for address in four}
    usable = [address for address, fault in faults.items() if fault is None]
    if not usable:
        return None, "; ".join(fault for fault in faults.values() if fault)
    try:
        return AsyncZeroconf(interfaces=list(usable)), ""
    except OSError as error:
        return None, f"multicast DNS cannot listen ({error.strerror})"


class JoinAnnouncer:
    """Announces a node's open invitations. `fault` says why it does not; empty when it does."""

    def __init__(self, node_id: str, addresses: Sequence[str], port: int) -> None:
        """`addresses` are IPs."""
        self._node_id = node_id
        self._addresses = tuple(addresses)
        self._port = port
        self._shown: dict[str, AsyncServiceInfo] = {}
        self._zeroconf, self.fault = open_multicast(addresses)
        if self.fault:
            _log.warning("join_mdns_off", reason=self.fault)

    async def show(self, nameplates: Iterable[str]) -> None:
        """Announces these, and no others. Takes a second for each new one."""
        if self._zeroconf is None:
            return
        wanted = set(nameplates)
        try:
            for nameplate in self._shown.keys() - wanted:
                await self._zeroconf.async_unregister_service(self._shown.pop(nameplate))
            for nameplate in sorted(wanted - self._shown.keys()):
                info = self._info(nameplate)
                await self._zeroconf.async_register_service(info)
                self._shown[nameplate] = info
        except (zeroconf.Error, OSError) as error:
            self.fault = f"multicast DNS failed ({type(error).__name__}: {error})"
            _log.warning("join_mdns_off", reason=self.fault)

    async def close(self) -> None:
        """Says goodbye and closes the sockets."""
        if self._zeroconf is None:
            return
        try:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
        except (zeroconf.Error, OSError) as error:
            # Announcements expire by themselves.
            _log.warning("join_mdns_fault", reason=f"{type(error).__name__}: {error}")

    def _info(self, nameplate: str) -> AsyncServiceInfo:
        return AsyncServiceInfo(
            SERVICE,
            f"{nameplate}-{self._node_id[:32]}.{SERVICE}",
            parsed_addresses=list(self._addresses),
            port=self._port,
            server=f"kakeya-join-{self._node_id[:16]}.local.",
            properties={"nameplate": nameplate, "node_id": self._node_id},
        )


class IssuerSearch:
    """Looks for nodes that have the invitation of a nameplate, while it is entered."""

    def __init__(self, nameplate: str, interfaces: Sequence[str]) -> None:
        """`interfaces` are IPs of this machine."""
        self._nameplate = nameplate
        self._names: asyncio.Queue[str] = asyncio.Queue(_QUEUE)
        self._zeroconf, self.fault = open_multicast(interfaces)
        self._browser: AsyncServiceBrowser | None = None

    async def __aenter__(self) -> IssuerSearch:
        if self._zeroconf is not None:
            self._browser = AsyncServiceBrowser(
                self._zeroconf.zeroconf, SERVICE, handlers=[self._on_change]
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._browser is not None:
            await self._browser.async_cancel()
        if self._zeroconf is not None:
            await self._zeroconf.async_close()

    async def next(self, seconds: float) -> FoundIssuer | None:
        """The next one that is found; None when none is in that time."""
        if self._zeroconf is None:
            return None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = await self._resolve(self._zeroconf, await self._names.get())
                    if found is not None:
                        return found
        except TimeoutError:
            return None

    async def _resolve(self, multicast: AsyncZeroconf, name: str) -> FoundIssuer | None:
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(multicast.zeroconf, _RESOLVE_MS):
            return None
        facts = info.decoded_properties
        node_id = facts.get("node_id")
        if facts.get("nameplate") != self._nameplate or node_id is None or info.port is None:
            return None
        port = info.port
        addresses = (join_address(address, port) for address in info.parsed_addresses())
        return FoundIssuer(node_id, tuple(addresses)[:MOST_ADDRESSES])

    def _on_change(
        self,
        zeroconf: zeroconf.Zeroconf,  # noqa: ARG002 the browser calls by name
        service_type: str,  # noqa: ARG002
        name: str,
        state_change: zeroconf.ServiceStateChange,
    ) -> None:
        # The name begins with the nameplate, so that a network full of others fills no queue.
        is_added = state_change is _ADDED and name.startswith(f"{self._nameplate}-")
        if is_added and not self._names.full():
            self._names.put_nowait(name)


_ADDED = zeroconf.ServiceStateChange.Added

"""Multicast DNS (RFC 6762, RFC 6763) of one node, on given interfaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX
from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.membership.announcement import Announcement, MulticastFailed

SERVICE = "_kakeya._tcp.local."
# A network can name more services than a fleet has nodes: the rest waits for the next answer.
_QUEUE = 64
_RESOLVE_MS = 3000
_REMOVED = zeroconf.ServiceStateChange.Removed


class Multicast:
    """Open sockets. `close` says goodbye."""

    def __init__(self, interfaces: Sequence[str]) -> None:
        """On the interfaces of these IPs. Raises `OSError`."""
        self._zeroconf = AsyncZeroconf(interfaces=list(interfaces))
        self._names: asyncio.Queue[str] = asyncio.Queue(_QUEUE)

    async def serve(self, own: Announcement, found: Callable[[str], None]) -> None:
        """Announces, and calls `found` with each host:port of the fleet, until cancelled.

        Raises `MulticastFailed`.
        """
        browser = None
        try:
            await self._announce(own)
            browser = AsyncServiceBrowser(
                self._zeroconf.zeroconf, SERVICE, handlers=[self._on_change]
            )
            while True:
                await self._resolve(own, await self._names.get(), found)
        except (zeroconf.Error, OSError) as error:
            raise MulticastFailed(
                f"multicast DNS failed ({type(error).__name__}: {error})"
            ) from error
        finally:
            if browser is not None:
                await browser.async_cancel()

    async def close(self) -> None:
        """Says goodbye and closes the sockets."""
        await self._zeroconf.async_unregister_all_services()
        await self._zeroconf.async_close()

    async def _announce(self, own: Announcement) -> None:
        info = AsyncServiceInfo(
            SERVICE,
            f"{own.node_id[:32]}.{SERVICE}",
            parsed_addresses=list(own.addresses),
            port=own.port,
            server=f"kakeya-{own.node_id[:16]}.local.",
            properties={
                "node_id": own.node_id,
                "fleet": own.fleet_name,
                "version": str(PROTOCOL_MAX),
            },
        )
        await self._zeroconf.async_register_service(info)

    def _on_change(
        self,
        zeroconf: zeroconf.Zeroconf,  # noqa: ARG002 the browser calls by name
        service_type: str,  # noqa: ARG002
        name: str,
        state_change: zeroconf.ServiceStateChange,
    ) -> None:
        if state_change is not _REMOVED and not self._names.full():
            self._names.put_nowait(name)

    async def _resolve(self, own: Announcement, name: str, found: Callable[[str], None]) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(self._zeroconf.zeroconf, _RESOLVE_MS):
            return
        facts = info.decoded_properties
        if facts.get("fleet") != own.fleet_name or info.port is None:
            return
        if facts.get("node_id") in (None, own.node_id):
            return
        for address in info.parsed_addresses():
            found(join_address(address, info.port))

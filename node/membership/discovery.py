"""Finding nodes by multicast DNS (RFC 6762, RFC 6763), on the bound interfaces alone.

What it finds are hints: an address at which a node of this fleet may answer.
Who it is, and whether its card is good, is decided by the exchange that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from kakeya_fleet.node.membership.announcement import Announcement, MulticastFailed
from kakeya_fleet.node.membership.network import multicast_fault

if TYPE_CHECKING:
    from kakeya_fleet.node.membership.multicast import Multicast

_log = structlog.get_logger(__name__)


class Discovery:
    """Announces this node and looks for others. `fault` says why it does not."""

    def __init__(self, announcement: Announcement) -> None:
        self._own = announcement
        self._multicast: Multicast | None = None
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
                self._multicast = _multicast_on(usable)
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
        if self._multicast is None:
            return
        try:
            await self._multicast.serve(self._own, found)
        except MulticastFailed as failed:
            self.fault = str(failed)
            _log.warning("mdns_off", reason=self.fault)

    async def close(self) -> None:
        """Says goodbye and closes the sockets."""
        multicast, self._multicast = self._multicast, None
        if multicast is not None:
            await multicast.close()


def _multicast_on(interfaces: Sequence[str]) -> Multicast:
    """Loads the library, which a node that is told its peers never uses: 3 MB. Raises `OSError`."""
    from kakeya_fleet.node.membership.multicast import Multicast  # noqa: PLC0415

    return Multicast(interfaces)

"""Channels to archives: one a node and address, opened anew with the certificates of now."""

from __future__ import annotations

import grpc

from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust


class ArchiveChannels:
    """Belongs to the event loop's thread; the channels are for threads.

    One that is open keeps the certificates of its opening, and so whom they made members.
    """

    def __init__(self, channels: Channels, trust: Trust | None) -> None:
        self._opener = channels
        self._trust = trust
        self._open: dict[tuple[str, str], grpc.Channel] = {}
        self._past: list[grpc.Channel] = []
        self._is_past = False
        if trust is not None:
            trust.on_change.append(self._change)

    def to(self, address: str, node_id: str) -> grpc.Channel:
        """To the node at host:port, which proves to be that one where the fleet has an authority.

        Raises nothing: calls tell what is wrong.
        """
        if self._is_past:
            self._is_past = False
            self._let_go()
        channel = self._open.get((address, node_id))
        if channel is None:
            channel = self._opener.open_blocking(address, node_id)
            self._open[address, node_id] = channel
        return channel

    def close(self) -> None:
        """Ends all of them."""
        if self._trust is not None:
            self._trust.on_change.remove(self._change)
        self._let_go()
        for channel in self._past:
            channel.close()
        self._past.clear()

    def _change(self) -> None:
        self._is_past = True

    def _let_go(self) -> None:
        """Takes no new calls to what is open; those under way, bounded in time, end first."""
        for channel in self._past:
            channel.close()
        self._past = list(self._open.values())
        self._open.clear()

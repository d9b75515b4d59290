"""Frames over a Unix socket, both ways, in the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from kakeya_fleet.engine.backends.mlx_ring.protocol import Frame, FrameReader


class FrameChannel(asyncio.Protocol):
    """One socket of a road. `on_lost` hears why it has ended, once, unless it was closed here."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[str], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._is_closed = False

    @classmethod
    async def over(
        cls,
        own: socket.socket,
        on_frame: Callable[[Frame], None],
        on_lost: Callable[[str], None],
    ) -> FrameChannel:
        """Takes the connected socket over."""
        loop = asyncio.get_running_loop()
        own.setblocking(False)  # noqa: FBT003 - the socket's own signature
        _, channel = await loop.create_unix_connection(lambda: cls(on_frame, on_lost), sock=own)
        return channel

    def write(self, frame: Frame) -> None:
        """Sends a frame; of no effect after the end."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame.packed())

    def close(self) -> None:
        """Closes the socket; the other side notices."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        if self._is_closed:
            return
        try:
            frames = self._reader.feed(data)
        except ValueError as error:
            self._lost(f"the other side sent what is no frame: {error}")
            return
        for frame in frames:
            self._on_frame(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._lost(f"the connection broke ({exc})" if exc else "the other side has closed it")

    def _lost(self, reason: str) -> None:
        if not self._is_closed:
            self.close()
            self._on_lost(reason)

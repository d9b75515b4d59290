"""A TCP relay that holds back every byte for a while, both ways: a slower network."""

from __future__ import annotations

import asyncio
from contextlib import suppress

READ_BYTES = 1 << 16


class DelayRelay:
    """Relays connections to `target`; each direction takes half of `round_trip_seconds` longer.

    Order is kept, and throughput is not limited: bytes wait, they do not queue
    behind each other's delay.
    """

    def __init__(self, target_host: str, target_port: int, round_trip_seconds: float) -> None:
        self._target = (target_host, target_port)
        self._delay = round_trip_seconds / 2
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listens on a free port of this machine, and returns it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Cuts all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served by a task")
        self._connections.add(task)
        try:
            # Ends with a cut connection, or with `close`.
            with suppress(OSError, asyncio.CancelledError):
                onward_reader, onward_writer = await asyncio.open_connection(*self._target)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pump(reader, onward_writer))
                        group.create_task(self._pump(onward_reader, writer))
                finally:
                    onward_writer.close()
        finally:
            writer.close()
            self._connections.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bytes in, and after the delay out, until the end of the stream."""
        loop = asyncio.get_running_loop()
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await held.get()
                await asyncio.sleep(due - loop.time())
                if not data:
                    with suppress(OSError):
                        writer.write_eof()
                    return
                writer.write(data)
                with suppress(OSError):
                    await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            while True:
                try:
                    data = await reader.read(READ_BYTES)
                except OSError:
                    data = b""
                held.put_nowait((loop.time() + self._delay, data))
                if not data:
                    break
            await delivering
        finally:
            delivering.cancel()

"""Bytes over a connection of its own, written at once; what comes back until the other end ends."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

SILENCE_SECONDS = 1.0
OPENING_SECONDS = 10.0
MOST_READ = 1 << 20


class Refused(Exception):
    """No connection was to be had."""


async def exchanged(
    address: str,
    sent: bytes,
    *,
    half_closes: bool,
    silence_seconds: float = SILENCE_SECONDS,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """What is answered to `sent`, as far as it comes without a longer silence.

    Raises `Refused` when nobody listens or the connection is not taken, `ssl.SSLError` among it.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(OPENING_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
    except (OSError, TimeoutError) as error:
        raise Refused(f"{address}: {error}") from error
    answer = b""
    # An end of the other side in the middle is an answer too.
    with suppress(OSError, TimeoutError):
        writer.write(sent)
        if half_closes and writer.can_write_eof():
            writer.write_eof()
        while len(answer) < MOST_READ:
            async with asyncio.timeout(silence_seconds):
                more = await reader.read(1 << 16)
            if not more:
                break
            answer += more
    writer.transport.abort()
    return answer

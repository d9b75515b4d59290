"""Bytes at ports for members alone, by who is none: with another fleet's certificate or without.

TLS 1.3 as any client speaks it, and damaged: what stands behind the handshake is sent before the
other end has refused it, so that a server that reads first would read it.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.attack.mutations import Mutator
from scripts.attack.streams import Refused, exchanged
from scripts.attack.tally import Tally

SILENCE_SECONDS = 0.2
ANSWERED_BEHIND_A_HANDSHAKE = "answered behind the handshake"
"""What no stranger's connection may end with, but for a word of why it is refused."""


class StrangerFuzzer:
    """Connects to one of `addresses`, as whom `tls` says, and sends what `makes` makes."""

    def __init__(
        self,
        addresses: Sequence[str],
        tls: ssl.SSLContext | None,
        make: Callable[[random.Random], bytes],
        service: str,
        tally: Tally,
        rng: random.Random,
    ) -> None:
        """Without `tls` bytes are sent as they are. `service` is the port's name in the report."""
        self._addresses = addresses
        self._tls = tls
        self._make = make
        self._service = service
        self._tally = tally
        self._rng = rng
        self._mutator = Mutator(rng)

    async def once(self) -> None:
        """One connection, one in four of which is cut or damaged within the handshake."""
        sent, tls = self._make(self._rng), self._tls
        if tls is not None and self._rng.random() < 0.25:
            sent, tls = self._mutator.damaged(client_hello(tls)), None
        self._tally.sent(self._service)
        try:
            answer = await exchanged(
                self._rng.choice(self._addresses),
                sent,
                half_closes=self._rng.random() < 0.5,
                silence_seconds=SILENCE_SECONDS,
                tls=tls,
            )
        except Refused:
            self._tally.ended(self._service, "refused")
            return
        answered = ANSWERED_BEHIND_A_HANDSHAKE if tls is not None and answer else "closed"
        self._tally.ended(self._service, answered)


def context_of(certificate: Path | None) -> ssl.SSLContext:
    """A client that believes any server, with that file's certificate and key or with none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without an answer")

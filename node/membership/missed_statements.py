"""What a member missed: keepers that were named while it was away, and whose members it cannot
tell from strangers.

Statements prove themselves, whoever brings them. So they are asked of a node that proves
nothing but that it has the key of the certificate it shows. It hears from this one which
statements are known here, by their digests, and nothing else.
"""

from __future__ import annotations

import asyncio

from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.membership.statement_exchange import StatementExchange
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.tls import shown_certificate
from kakeya_fleet.node.trust.trust import Trust

HANDSHAKE_SECONDS = 1.0


class MissedStatements:
    """Belongs to one event loop."""

    def __init__(self, trust: Trust, channels: Channels, exchange: StatementExchange) -> None:
        self._trust = trust
        self._channels = channels
        self._exchange = exchange

    async def ask(self, address: str) -> None:
        """Asks whoever answers at host:port, if it is one whom this node cannot check.

        Raises `BadCertificate` when its certificate makes nobody a member even then.
        """
        shown = await self._shown(address)
        if shown is None:
            return
        try:
            self._trust.member_of(shown)
        except BadCertificate as error:
            if error.metadata.get("fault"):
                # Its own keeper is known: the certificate is too old, or its node is out.
                raise
        else:
            return
        async with self._channels.open_unproven(address, shown) as channel:
            await self._exchange.take_from(channel, address)
        self._trust.member_of(shown)

    async def _shown(self, address: str) -> bytes | None:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                return await shown_certificate(split_address("peers", address), self._trust)
        except OSError:
            # TimeoutError is one: what is not there, people are told of by others.
            return None

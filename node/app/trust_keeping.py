"""A member's part in its fleet's authority, as long as its node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress

import grpc.aio
import structlog

from kakeya.rpc_status import kakeya_error
from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.trust.host_names import HostNames, certifiable
from kakeya_fleet.node.errors import BadCertificate, NotAKeeper
from kakeya_fleet.node.membership.card_maker import CardMaker
from kakeya_fleet.node.membership.gossip import Gossip
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.statement_exchange import StatementExchange
from kakeya_fleet.node.rpc.closed_channels import closed_under_call
from kakeya_fleet.node.trust.certificates import hosts_of
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.background import BackgroundTasks
from kakeya_fleet.node.watch.event_log import EventKind, EventLog

TRIES = 2
"""To tell a member: the other side opens its channels anew at a statement, as this one does."""
LOOK_SECONDS = 60.0
FIRST_SECONDS = 0.5
"""Until the next try to renew, when no keeper was known yet; doubled up to `LOOK_SECONDS`."""
RENEW_SECONDS = 10.0
WARNED_SECONDS = 86_400.0
"""Before the certificate ends people are told that nobody renews it."""

_log = structlog.get_logger(__name__)


class TrustKeeping:
    """Spreads what keepers say, and renews this node's certificate. Belongs to one event loop."""

    def __init__(
        self,
        trust: Trust,
        exchange: StatementExchange,
        gossip: Gossip,
        known: KnownFleet,
        peers: Peers,
        card_maker: CardMaker,
        tasks: BackgroundTasks,
        events: EventLog,
    ) -> None:
        self.hosts: Callable[[], HostNames] = HostNames
        """Where clients call this node now that compare its certificate with what they called."""
        self._asked_for = HostNames()
        self.trust = trust
        self.exchange = exchange
        self._gossip = gossip
        self._known = known
        self._peers = peers
        self._card_maker = card_maker
        self._tasks = tasks
        self._events = events
        self._out = trust.ledger.revoked
        self._certificate = trust.member.certificate
        self._is_warned = False
        self._look = asyncio.Event()
        trust.on_change.append(self._changed)

    async def run(self) -> None:
        """Renews the certificate at half of its life, until cancelled."""
        pause = FIRST_SECONDS
        while True:
            if self._is_due() and not await self.renew():
                self._warn()
                pause = min(2 * pause, LOOK_SECONDS)
            else:
                pause = LOOK_SECONDS if not self._is_due() else FIRST_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._look.wait()
                pause = FIRST_SECONDS
            self._look.clear()

    def require_keeper(self) -> None:
        """Raises `NotAKeeper`."""
        if not self.trust.is_keeper:
            raise NotAKeeper(
                f"this node is no keeper of the fleet {self.trust.fleet.name}", "ask on a keeper"
            )

    async def spread(self) -> int:
        """Tells every member that answers, at once; how many were told."""
        told = await asyncio.gather(*(self._told(node_id) for node_id in self._others()))
        return sum(told)

    async def renew(self) -> bool:
        """Asks a keeper for a new certificate; whether one gave it.

        A keeper asks itself last, unless it is the first one: a member that was away while it
        became a keeper knows of it from nodes alone whose certificates it can check.
        """
        hosts = self.hosts()
        key, request = self.trust.request(hosts)
        ledger = self.trust.ledger
        keepers = {keeper.node_id for keeper in ledger.keepers.values()}
        first = ledger.keepers.get(self.trust.fleet.fleet_id)
        if first is not None and first.node_id == self.trust.node_id:
            keepers.clear()
        message = trust_pb2.RenewCertificateRequest(certificate_request=request)
        for node_id in self._others():
            if node_id not in keepers:
                continue
            stub = trust_pb2_grpc.TrustServiceStub(self._known.channel(node_id))
            try:
                answer = await stub.RenewCertificate(message, timeout=RENEW_SECONDS)
                self.trust.renewed(key, answer.certificate)
            except grpc.aio.AioRpcError as error:
                fault = kakeya_error(error, node_id[:12])
                _log.warning("not_renewed", keeper=node_id, reason=fault.reason)
            except BadCertificate as error:
                _log.warning("not_renewed", keeper=node_id, cause=error.cause)
            except asyncio.CancelledError:
                if not closed_under_call():
                    raise
                # The channel was closed under the call: statements have come meanwhile.
                _log.info("not_renewed", keeper=node_id, cause="channels were opened anew")
            else:
                self._asked_for = hosts
                return True
        if self.trust.is_keeper:
            self.trust.renewed(key, self.trust.issue(request, self.trust.node_id))
            self._asked_for = hosts
            return True
        return False

    async def _told(self, node_id: str) -> bool:
        for _ in range(TRIES):
            address = self._known.address(node_id)
            if address is not None and await self.exchange.exchange(address, node_id):
                return True
        return False

    def _others(self) -> Iterator[str]:
        """Those who may answer: who is suspect for a moment does."""
        for view in self._known.nodes():
            if not view.liveness.is_tombstone and view.card.node_id != self._known.self_id:
                yield view.card.node_id

    def _changed(self) -> None:
        """Somebody was put out, a keeper was named, or the own certificate is another one."""
        out, self._out = self._out, self.trust.ledger.revoked
        if self._out - out:
            self._gossip.put_out(self._out - out)
        if self.trust.is_out(self.trust.node_id) and self.trust.node_id not in out:
            _log.error("put_out", fleet_name=self.trust.fleet.name)
            self._events.add(
                EventKind.PUT_OUT, f"This node was put out of the fleet {self.trust.fleet.name}."
            )
        if self.trust.member.certificate != self._certificate:
            self._certificate = self.trust.member.certificate
            self._gossip.announce(self._card_maker.certify(self._certificate))
            self._is_warned = False
        if self._is_due():
            # What has changed may be that there is another keeper to ask.
            self._look.set()
        # Channels keep the certificates of their opening, and reach those who were put out.
        self._tasks.once("channels", self._peers.reopen)

    def _is_due(self) -> bool:
        began, ends = self.trust.began_unix, self.trust.ends_unix
        is_old = self.trust.now_unix() >= began + (ends - began) / 2
        return is_old or not self.trust.is_kept or self._is_called_elsewhere()

    def _is_called_elsewhere(self) -> bool:
        """Whether the certificate lacks a host, which no keeper has refused to certify yet."""
        hosts = self.hosts()
        if hosts == self._asked_for:
            return False
        return hosts_of(self.trust.member.certificate).lacks(certifiable(hosts))

    def _warn(self) -> None:
        left = self.trust.ends_unix - self.trust.now_unix()
        if self._is_warned or left > WARNED_SECONDS or not self._is_due():
            return
        self._is_warned = True
        _log.warning("certificate_ends", hours=round(left / 3600, 1), mend="start a keeper")
        self._events.add(
            EventKind.CERTIFICATE_ENDS,
            f"No keeper renews this node's certificate, which ends in {left / 3600:.0f} hours.",
        )

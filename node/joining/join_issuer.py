"""A node's invitations, and the port that is open while one of them is."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import grpc.aio
import structlog

from kakeya.v1 import join_pb2_grpc
from kakeya_fleet.fleet.trust.invitation import Invitation, Invitations
from kakeya_fleet.fleet.trust.join_code import long_code, short_code
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.joining.application import Grant
from kakeya_fleet.node.joining.join_discovery import JoinAnnouncer
from kakeya_fleet.node.joining.join_messages import MAX_GRANT_BYTES, MAX_REQUEST_BYTES
from kakeya_fleet.node.joining.join_service import JoinServicer
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.grpc_settings import STOP_SECONDS, server_options
from kakeya_fleet.node.rpc.listening import listen
from kakeya_fleet.node.watch.event_log import EventLog

_log = structlog.get_logger(__name__)

_CALLS_A_PLACE = 4
"""gRPC's own bound, which refuses without a reason, is for those beyond the servicer's."""
_MDNS_OFF = "multicast DNS is switched off on this node"


@dataclass(frozen=True, slots=True)
class OpenInvitation:
    """What to show to whoever invites. `expires_at` is in seconds of the issuer's clock.

    `long_codes` has one for each address that others may reach. `multicast_fault` says why the
    short code will not be found; empty when it will.
    """

    nameplate: str
    short_code: str = field(repr=False)
    long_codes: tuple[str, ...] = field(repr=False)
    expires_at: float
    multicast_fault: str = ""


@dataclass(frozen=True, slots=True)
class _Door:
    """What is open while an invitation is."""

    server: grpc.aio.Server
    port: int
    announcer: JoinAnnouncer | None
    keeper: asyncio.Task[None]


class JoinIssuer:
    """Invites machines, and lets in who proves to have a code. Belongs to the event loop."""

    def __init__(
        self,
        *,
        node_id: str,
        hosts: Sequence[str],
        grant: Grant,
        events: EventLog,
        metrics: NodeMetrics,
        allowances: Allowances,
        mdns: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hosts` are where to listen, such as 0.0.0.0; the port is any free one.

        Without `mdns` nothing is announced: only long codes find the way.
        """
        self._node_id = node_id
        self._hosts = tuple(hosts)
        self._metrics = metrics
        self._mdns = mdns
        self._clock = clock
        self._limits = allowances.limits.joining
        self._invitations = Invitations(self._limits.invitation_seconds)
        self._changed = asyncio.Event()
        self._servicer = JoinServicer(
            node_id, self._invitations, grant, events, self._changed.set, self._limits, clock
        )
        allowances.watch(
            "joining.at_once",
            lambda: self._servicer.count,
            lambda: self._servicer.refused_count,
        )
        allowances.watch("joining.invitations", lambda: len(self.open_invitations()))
        self._lock = asyncio.Lock()
        self._door: _Door | None = None

    @property
    def port(self) -> int:
        """Where joiners are answered; 0 while no invitation is open."""
        return self._door.port if self._door is not None else 0

    async def invite(self) -> OpenInvitation:
        """A new invitation. Raises `TooManyInvitations`, and `PortInUse` when none can listen."""
        async with self._lock:
            invitation = self._invitations.invite(self._clock(), secrets.randbelow)
            if self._door is None:
                try:
                    self._door = await self._opened()
                except BaseException:
                    self._invitations.withdraw(invitation.nameplate)
                    raise
            self._changed.set()
            return self._shown(invitation, self._door)

    def open_invitations(self) -> tuple[Invitation, ...]:
        """Those that a machine can still join by."""
        return self._invitations.open_at(self._clock())

    def withdraw(self, nameplate: str) -> None:
        """Ends an invitation."""
        self._invitations.withdraw(nameplate)
        self._changed.set()

    async def close(self) -> None:
        """Ends all invitations, and waits until nothing listens."""
        for invitation in self.open_invitations():
            self._invitations.withdraw(invitation.nameplate)
        self._changed.set()
        door = self._door
        if door is not None:
            await asyncio.wait((door.keeper,))

    def _addresses(self) -> tuple[str, ...]:
        """IP addresses as they are now: an invitation is of one time and place."""
        return tuple(
            dict.fromkeys(address for host in self._hosts for address in addresses_of(host))
        )

    def _shown(self, invitation: Invitation, door: _Door) -> OpenInvitation:
        nameplate = invitation.nameplate
        return OpenInvitation(
            nameplate=nameplate,
            short_code=short_code(nameplate, invitation.password),
            long_codes=tuple(
                long_code(join_address(address, door.port), nameplate, invitation.secret)
                for address in self._addresses()
            ),
            expires_at=invitation.expires_at,
            multicast_fault=door.announcer.fault if door.announcer else _MDNS_OFF,
        )

    async def _opened(self) -> _Door:
        sizes = (
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.max_send_message_length", MAX_GRANT_BYTES),
        )
        names = {name for name, _ in sizes}
        options = [each for each in server_options() if each[0] not in names]
        server = grpc.aio.server(
            interceptors=(ErrorInterceptor(self._metrics),),
            options=[*options, *sizes],
            maximum_concurrent_rpcs=_CALLS_A_PLACE * self._limits.at_once,
        )
        join_pb2_grpc.add_JoinServiceServicer_to_server(self._servicer, server)
        port = 0
        try:
            for host in self._hosts:
                port = listen(server, host, port, 0)
            await server.start()
        except BaseException:
            await server.stop(None)
            raise
        announcer = None
        if self._mdns:
            announcer = JoinAnnouncer(self._node_id, self._addresses(), port)
        _log.info("join_open", port=port)
        keeper = asyncio.create_task(self._keep(server, announcer), name="join-door")
        return _Door(server, port, announcer, keeper)

    async def _keep(self, server: grpc.aio.Server, announcer: JoinAnnouncer | None) -> None:
        """Announces what is open, and closes the door when nothing is."""
        while True:
            opened = self.open_invitations()
            if not opened:
                async with self._lock:
                    # One may have been made while this waited for the lock.
                    if not self.open_invitations():
                        # Calls that are under way get their answers.
                        await server.stop(STOP_SECONDS)
                        if announcer is not None:
                            await announcer.close()
                        self._door = None
                        _log.info("join_closed")
                        return
                continue
            if announcer is not None:
                await announcer.show(each.nameplate for each in opened)
            seconds = min(each.expires_at for each in opened) - self._clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._changed.wait()
            self._changed.clear()

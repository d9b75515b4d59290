"""The joiner's side: from a code to a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import grpc
import grpc.aio

from kakeya import KakeyaError, UnexpectedError
from kakeya.rpc_status import kakeya_error
from kakeya.v1 import join_pb2 as wire
from kakeya.v1 import join_pb2_grpc
from kakeya_fleet.fleet.errors import (
    FleetError,
    InvitationClosed,
    JoinCodeWrong,
    JoinRefused,
    NoInvitationFound,
    ProtocolSkew,
)
from kakeya_fleet.fleet.trust.join_code import JoinCode, JoinCodeKind, parse_join_code
from kakeya_fleet.node.joining.application import (
    JoinGrantContent,
    check_grant,
    signed_application,
)
from kakeya_fleet.node.joining.join_discovery import FoundIssuer, IssuerSearch
from kakeya_fleet.node.joining.join_exchange import JoinerExchange
from kakeya_fleet.node.joining.join_messages import MAX_GRANT_BYTES, MAX_REQUEST_BYTES
from kakeya_fleet.node.joining.join_wire import (
    application_to_bytes,
    grant_from_bytes,
    issuer_hello_from_wire,
    joiner_hello_to_wire,
    proof_to_wire,
    sealed_grant_from_wire,
)
from kakeya_fleet.node.membership.identity import Identity
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.rpc.grpc_settings import client_options
from kakeya_fleet.node.rpc.refusals import MalformedMessage

_Call = grpc.aio.StreamStreamCall[wire.JoinRequest, wire.JoinResponse]

MOST_ISSUERS = 3
"""How many issuers a short code is tried with.

Whoever announces the nameplate gets one guess at the password: a network full of false
announcements must not get more guesses than an invitation has tries.
"""
_SHOWN_CHARACTERS = 400
# What issuers say of a failed join; their words count for nothing else.
_KINDS: dict[str, type[FleetError]] = {
    kind.reason: kind
    for kind in (InvitationClosed, JoinCodeWrong, JoinRefused, NoInvitationFound, ProtocolSkew)
}
# Of several issuers' answers, the one that helps most is told.
_TELLING = (JoinCodeWrong, InvitationClosed, ProtocolSkew, MalformedMessage, KakeyaError)
_Fault = FleetError | KakeyaError | MalformedMessage


@dataclass(frozen=True, slots=True)
class JoinDeadlines:
    """How long a join may take, in seconds."""

    search_seconds: float = 10.0
    """For an issuer of a short code to be found."""
    more_seconds: float = 2.0
    """For another one, once one did not have the code."""
    connect_seconds: float = 3.0
    """For an address to answer at all."""
    join_seconds: float = 10.0
    """For one exchange, from its hello to its grant."""


async def join(
    code: str,
    identity: Identity,
    name: str,
    certificate_request: bytes,
    *,
    interfaces: Sequence[str] | None = None,
    deadlines: JoinDeadlines | None = None,
) -> JoinGrantContent:
    """What the fleet gives to a machine that has the code.

    A long code's address is called; for a short one, issuers of its nameplate are looked for by
    multicast DNS on `interfaces` (IPs; all but loopback when None) and tried one after another,
    three at most. `certificate_request` is PKCS #10 in DER, for whose key the certificate will be.

    Raises `JoinCodeMalformed` before anything is sent; `JoinCodeWrong`, `InvitationClosed`,
    `NoInvitationFound`, `JoinRefused`, `ProtocolSkew`; `MalformedMessage` when what answers keeps
    to no contract; `KakeyaError` for other refusals, such as TOO_MANY_CALLS.
    """
    parsed = parse_join_code(code)
    attempts = _Attempts(parsed, identity, name, certificate_request, deadlines or JoinDeadlines())
    if parsed.kind is JoinCodeKind.LONG:
        return await attempts.at(parsed.address)
    return await attempts.found(addresses_of("0.0.0.0") if interfaces is None else interfaces)


class _Attempts:
    """The tries of one machine with one code."""

    def __init__(
        self,
        code: JoinCode,
        identity: Identity,
        name: str,
        certificate_request: bytes,
        deadlines: JoinDeadlines,
    ) -> None:
        self._code = code
        self._identity = identity
        self._name = name
        self._certificate_request = certificate_request
        self._deadlines = deadlines

    async def found(self, interfaces: Sequence[str]) -> JoinGrantContent:
        """By whoever has the invitation; raises the most telling of what the tries ended with."""
        clock = asyncio.get_running_loop().time
        faults: list[_Fault] = []
        unreached: NoInvitationFound | None = None
        async with IssuerSearch(self._code.nameplate, interfaces) as search:
            until = clock() + self._deadlines.search_seconds
            while len(faults) < MOST_ISSUERS:
                issuer = await search.next(until - clock())
                if issuer is None:
                    break
                try:
                    return await self._with(issuer)
                except JoinRefused:
                    raise
                except NoInvitationFound as fault:
                    # It has guessed nothing, and another may be the one.
                    unreached = fault
                except (FleetError, KakeyaError, MalformedMessage) as fault:
                    faults.append(fault)
                    until = min(until, clock() + self._deadlines.more_seconds)
            if faults:
                raise _most_telling(faults)
            raise unreached or _not_announced(self._code.nameplate, self._deadlines, search.fault)

    async def _with(self, issuer: FoundIssuer) -> JoinGrantContent:
        """By the first of its addresses that answers."""
        unreached: NoInvitationFound | None = None
        for address in issuer.addresses:
            try:
                return await self.at(address)
            except NoInvitationFound as fault:
                unreached = fault
        raise unreached or NoInvitationFound("the node that invites announces no address")

    async def at(self, address: str) -> JoinGrantContent:
        """By the issuer at host:port."""
        sizes = (
            ("grpc.max_receive_message_length", MAX_GRANT_BYTES),
            ("grpc.max_send_message_length", MAX_REQUEST_BYTES),
        )
        names = {name for name, _ in sizes}
        options = [each for each in client_options() if each[0] not in names]
        async with grpc.aio.insecure_channel(address, options=[*options, *sizes]) as channel:
            try:
                async with asyncio.timeout(self._deadlines.connect_seconds):
                    await channel.channel_ready()
            except TimeoutError:
                raise NoInvitationFound(f"no node answers at {address}", address=address) from None
            for is_last in (False, False, True):
                call = join_pb2_grpc.JoinServiceStub(channel).Join(
                    timeout=self._deadlines.join_seconds
                )
                exchange = JoinerExchange(self._code, self._identity.node_id)
                try:
                    if await _greeted(call, exchange) or is_last:
                        return await self._exchange(call, exchange)
                except grpc.aio.AioRpcError as error:
                    raise _told(error, address) from error
                finally:
                    call.cancel()
        raise AssertionError("the last call is made")

    async def _exchange(self, call: _Call, exchange: JoinerExchange) -> JoinGrantContent:
        answer = issuer_hello_from_wire(await _next(call))
        try:
            exchange.receive(answer)
        except JoinCodeWrong as wrong:
            raise await self._with_tries(call, wrong) from None
        application = signed_application(
            self._identity, self._name, self._certificate_request, exchange.transcript_hash
        )
        await _send(call, proof_to_wire(exchange.prove(application_to_bytes(application))))
        sealed = sealed_grant_from_wire(await _next(call))
        grant = grant_from_bytes(exchange.open_grant(sealed))
        check_grant(grant, self._certificate_request)
        return grant

    async def _with_tries(self, call: _Call, wrong: JoinCodeWrong) -> JoinCodeWrong:
        """The error with the tries that are left, if the issuer tells them when told of it."""
        told: _Fault | None = None
        # gRPC's own error is of a call that ends in this very moment.
        with suppress(TimeoutError, asyncio.InvalidStateError, grpc.aio.InternalError):
            async with asyncio.timeout(self._deadlines.more_seconds):
                await call.done_writing()
                try:
                    await call.read()
                except grpc.aio.AioRpcError as error:
                    told = _told(error, "")
        left = told.metadata.get("tries_left", "") if isinstance(told, JoinCodeWrong) else ""
        if not left.isascii() or not left.isdigit() or len(left) > 1:
            return wrong
        tries = f"{left} {'try is' if left == '1' else 'tries are'} left"
        return JoinCodeWrong(f"{wrong}; {tries}", tries_left=left)


async def _greeted(call: _Call, exchange: JoinerExchange) -> bool:
    """Sends the hello. False where gRPC lost what a call said that ended meanwhile: ask again.

    It has cost no try: nobody has guessed a code by a hello.
    """
    try:
        await _send(call, joiner_hello_to_wire(exchange.hello))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.INTERNAL:
            raise
        return False
    return True


async def _send(call: _Call, request: wire.JoinRequest) -> None:
    # What a call that has ended has to say is read next.
    with suppress(asyncio.InvalidStateError):
        await call.write(request)


async def _next(call: _Call) -> wire.JoinResponse:
    response = await call.read()
    if not isinstance(response, wire.JoinResponse):
        raise MalformedMessage("the issuer ended the join before it gave anything")
    return response


def _told(error: grpc.aio.AioRpcError, address: str) -> _Fault:
    """What a failed call says, in printable words of bounded length: anybody may have said it."""
    known = kakeya_error(error, address)
    kind = _KINDS.get(known.reason)
    metadata = {
        _printable(key): _printable(value)
        for key, value in known.metadata.items()
        if kind is None or key != "mend"
    }
    if kind is not None:
        return kind(_printable(known.problem), **metadata)
    if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE):
        return NoInvitationFound(f"what answers at {address} takes no joins", address=address)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NoInvitationFound(f"{address} did not go on with the join", address=address)
    if isinstance(known, UnexpectedError) and error.code() is grpc.StatusCode.INTERNAL:
        # What gRPC makes of a call that ended while something was written.
        return MalformedMessage(f"{address} ended the join before it gave anything")
    return type(known)(
        _printable(known.problem),
        reason=_printable(known.reason),
        code=known.code,
        metadata=metadata,
        retry_after_seconds=known.retry_after_seconds,
    )


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())[:_SHOWN_CHARACTERS]


def _most_telling(faults: Sequence[_Fault]) -> _Fault:
    for kind in _TELLING:
        for fault in faults:
            if isinstance(fault, kind):
                return fault
    return faults[0]


def _not_announced(nameplate: str, deadlines: JoinDeadlines, fault: str) -> NoInvitationFound:
    if fault:
        return NoInvitationFound(f"the invitation {nameplate} cannot be looked for: {fault}")
    return NoInvitationFound(
        f"no node announced the invitation {nameplate} within {deadlines.search_seconds:g} s"
    )

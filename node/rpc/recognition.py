"""Who makes each call, in a fleet with an authority: found before anything of it is admitted."""

from __future__ import annotations

import hmac
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from kakeya_fleet.fleet.errors import FleetError, KeyMissing, KeyUnknown
from kakeya_fleet.fleet.trust.keys import KEY_PREFIX, ApplicationKey, Scope
from kakeya_fleet.fleet.trust.permissions import Caller
from kakeya_fleet.node.admission.caller import THIS_MACHINE, caller_of_key, caller_of_member
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.rpc.calling import Calling, proven
from kakeya_fleet.node.rpc.handlers import behaviour_of
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.tls import is_encrypted, member_calling
from kakeya_fleet.node.trust.trust import Trust

if TYPE_CHECKING:
    from kakeya_fleet.node.rpc.handlers import Context, Handler

_SCHEME = "Bearer "
_CALLERS = {Scope.GENERATE: Caller.GENERATOR, Scope.OBSERVE: Caller.OBSERVER}


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a call proves: `member` is empty without a certificate, `key` None without one."""

    callers: frozenset[Caller]
    member: str
    key: ApplicationKey | None
    calling: Calling

    @property
    def names(self) -> tuple[str, ...]:
        """Whose end ends the call, too."""
        key = caller_of_key(self.key.key_id) if self.key is not None else ""
        return tuple(filter(None, (self.member, key)))

    @property
    def told(self) -> str:
        """What it is, in words."""
        if self.key is not None:
            scopes = ", ".join(sorted(self.key.scopes)) or "nothing"
            return f"the key {self.key.name}, which is for {scopes},"
        if Caller.LOCAL in self.callers:
            return "a program without a certificate"
        return "a member" if Caller.KEEPER not in self.callers else "a keeper"


class Recogniser:
    """Knows members by their certificates, applications by their keys, the owner by its own.

    Whoever shows a key of the fleet is its holder and nothing else, by whichever port it calls:
    a member that calls for a client of its own shows the client's key.
    """

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._keys = ApplicationKeys(trust)
        self._owner = trust.files.owner_key().encode("ascii")

    def recognise(self, context: Context) -> Recognised:
        """Who makes a call.

        Raises `BadCertificate` for one who is a member no more, `KeyMissing`, `KeyUnknown`,
        `KeyRevoked`, `KeyExpired`.
        """
        connection = context.auth_context()
        bearer = _bearer(context)
        is_owner = hmac.compare_digest(bearer.encode("latin-1", "replace"), self._owner)
        try:
            member = member_calling(connection, self._trust) or ""
        except BadCertificate:
            if not is_owner:
                raise
            # Whoever has the key of a node that was put out can end it still.
            calling = Calling(THIS_MACHINE, observes=True)
            return Recognised(frozenset({Caller.OWNER}), "", None, calling)
        if bearer.startswith(KEY_PREFIX):
            key = self._keys.holder_of(bearer)
            callers = frozenset(_CALLERS[scope] for scope in key.scopes)
            observes = Scope.OBSERVE in key.scopes
            calling = Calling(caller_of_key(key.key_id), observes=observes, key=key)
            return Recognised(callers, member, key, calling)
        if is_encrypted(connection) and not member:
            raise self._without_key(bearer)
        standing = self._standing(member)
        if is_owner:
            standing |= {Caller.OWNER}
        is_here = member in ("", self._trust.node_id)
        caller = THIS_MACHINE if is_here else caller_of_member(member)
        return Recognised(standing, member, None, Calling(caller, observes=is_owner))

    def _standing(self, member: str) -> frozenset[Caller]:
        if not member:
            return frozenset({Caller.LOCAL})
        keepers = self._trust.ledger.keepers.values()
        if any(keeper.node_id == member for keeper in keepers):
            return frozenset({Caller.MEMBER, Caller.KEEPER})
        return frozenset({Caller.MEMBER})

    def _without_key(self, bearer: str) -> KeyMissing | KeyUnknown:
        """Of one who calls where applications do, and shows nothing that counts there."""
        fleet = self._trust.fleet.name
        if bearer:
            return KeyUnknown(f"what the caller shows is no key of the fleet {fleet}")
        return KeyMissing(f"applications call the fleet {fleet} with a key")


recognised: ContextVar[Recognised | FleetError | BadCertificate] = ContextVar("recognised")
"""Who makes the present call, or why nobody is known to."""


class Recognition(grpc.aio.ServerInterceptor):
    """Comes before what admits calls, which are a key's or a member's where one is known.

    It refuses nobody: `Authorisation` does, once the request was read. gRPC's own clients lose
    the reason of a call that is over before they have sent all of it.
    """

    def __init__(self, recogniser: Recogniser) -> None:
        self._recogniser = recogniser

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler, which begins once its caller is looked at."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        behaviour, make = behaviour_of(handler)

        async def awaiting(request: object, context: Context) -> object:
            self._look(context)
            return await behaviour(request, context)

        async def iterating(request: object, context: Context) -> AsyncIterator[object]:
            self._look(context)
            async for response in behaviour(request, context):
                yield response

        return make(
            iterating if inspect.isasyncgenfunction(behaviour) else awaiting,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _look(self, context: Context) -> None:
        try:
            found = self._recogniser.recognise(context)
        except (FleetError, BadCertificate) as error:
            recognised.set(error)
            return
        recognised.set(found)
        proven.set(found.calling)


def _bearer(context: Context) -> str:
    """What the call shows; empty for nothing, and for what is no bearer's."""
    shown = dict(context.invocation_metadata() or ()).get("authorization", "")
    text = shown if isinstance(shown, str) else shown.decode("latin-1")
    return text.removeprefix(_SCHEME).strip() if text.startswith(_SCHEME) else ""

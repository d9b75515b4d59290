"""TrustService: the authority of the fleet, for members and for whoever owns this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc.aio

from kakeya.rpc_status import kakeya_error
from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.fleet.trust.invitation import LIFETIME_SECONDS, TRIES
from kakeya_fleet.fleet.trust.ledger import MOST_KNOWN
from kakeya_fleet.node.admission.caller import host_of_peer
from kakeya_fleet.node.app.keys_wire import key_from_wire, key_to_wire
from kakeya_fleet.node.app.trust_keeping import TrustKeeping
from kakeya_fleet.node.errors import BadCertificate, NoAuthority
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.statement_exchange import MOST_IN_A_MESSAGE
from kakeya_fleet.node.rpc.authorisation import calling_member
from kakeya_fleet.node.rpc.message_limits import beyond_limits
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.statement_wire import ROLES, roles_from_wire

if TYPE_CHECKING:
    from kakeya_fleet.node.joining.join_issuer import JoinIssuer
    from kakeya_fleet.node.rpc.handlers import Context

MOST_REQUEST_BYTES = 8192
"""Of a request for a certificate."""
LIMITS = {"known": MOST_KNOWN, "statements": MOST_IN_A_MESSAGE}
CALL_SECONDS = 10.0


class TrustServicer(trust_pb2_grpc.TrustServiceServicer):
    """`keeping` is None in a fleet without an authority, where all is refused."""

    def __init__(
        self,
        keeping: TrustKeeping | None,
        known: KnownFleet,
        issuer: JoinIssuer | None,
        *,
        trusted_network: bool = False,
    ) -> None:
        self._trusted_network = trusted_network
        self._kept = keeping
        self._issuer = issuer
        self._known = known

    async def ExchangeStatements(  # noqa: N802
        self,
        request: trust_pb2.ExchangeStatementsRequest,
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.ExchangeStatementsResponse:
        """Raises `NoAuthority`, `MalformedMessage`."""
        keeping = self._keeping()
        excess = beyond_limits(request, LIMITS)
        if excess:
            raise MalformedMessage(excess)
        return keeping.exchange.answer(request)

    async def RenewCertificate(  # noqa: N802
        self,
        request: trust_pb2.RenewCertificateRequest,
        context: Context,
    ) -> trust_pb2.RenewCertificateResponse:
        """For the calling member itself. Raises `NoAuthority`, `NotAKeeper`, `BadCertificate`."""
        keeping = self._keeping()
        if len(request.certificate_request) > MOST_REQUEST_BYTES:
            raise MalformedMessage(f"a request has at most {MOST_REQUEST_BYTES} bytes")
        certificate = keeping.trust.issue(
            request.certificate_request, calling_member.get(), host_of_peer(context.peer())
        )
        return trust_pb2.RenewCertificateResponse(certificate=certificate)

    async def MakeAuthority(  # noqa: N802
        self,
        request: trust_pb2.MakeAuthorityRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.MakeAuthorityResponse:
        """Raises `NoAuthority`."""
        return trust_pb2.MakeAuthorityResponse(certificate=self._keeping().trust.make_authority())

    async def GetTrust(  # noqa: N802
        self,
        request: trust_pb2.GetTrustRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.GetTrustResponse:
        """Raises `NoAuthority`."""
        trust = self._keeping().trust
        return trust_pb2.GetTrustResponse(
            fleet_name=trust.fleet.name,
            fleet_id=trust.fleet.fleet_id,
            keepers=[
                trust_pb2.FleetKeeper(
                    node_id=keeper.node_id,
                    authority_id=authority,
                    certificate=keeper.certificate,
                )
                for authority, keeper in sorted(trust.ledger.keepers.items())
            ],
            revoked_node_ids=sorted(trust.ledger.revoked),
            certificate_ends_unix=trust.ends_unix,
            tensors_in_clear=self._trusted_network,
            allowed_roles=[
                trust_pb2.AllowedRoles(
                    node_id=node_id, roles=sorted(ROLES[each] for each in allowance.roles)
                )
                for node_id, allowance in sorted(trust.ledger.judged.allowances.items())
                if allowance.roles is not None
            ],
        )

    async def Invite(  # noqa: N802
        self,
        request: trust_pb2.InviteRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.InviteResponse:
        """Raises `NoAuthority`, `NotAKeeper`, `TooManyInvitations`, `PortInUse`."""
        self._keeping().require_keeper()
        assert self._issuer is not None
        opened = await self._issuer.invite()
        return trust_pb2.InviteResponse(
            short_code=opened.short_code,
            long_codes=opened.long_codes,
            valid_seconds=LIFETIME_SECONDS,
            tries=TRIES,
            multicast_fault=opened.multicast_fault,
        )

    async def Revoke(  # noqa: N802
        self,
        request: trust_pb2.RevokeRequest,
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.RevokeResponse:
        """Raises `NoAuthority`, `NotAKeeper`, `LastKeeper`, `NodeNotFound`."""
        keeping = self._keeping()
        self._known.state(request.node_id)
        cards = [view.card for view in self._known.nodes()]
        keeping.trust.revoke(request.node_id, [each.certificate for each in cards])
        return trust_pb2.RevokeResponse(told_count=await keeping.spread())

    async def AddKeeper(  # noqa: N802
        self,
        request: trust_pb2.AddKeeperRequest,
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.AddKeeperResponse:
        """Raises `NoAuthority`, `NotAKeeper`, `NodeNotFound`, and why the node did not answer."""
        keeping = self._keeping()
        keeping.require_keeper()
        if request.node_id == self._known.self_id:
            raise NodeNotFound("this node is a keeper already", node_id=request.node_id)
        stub = trust_pb2_grpc.TrustServiceStub(self._known.channel(request.node_id))
        try:
            made = await stub.MakeAuthority(trust_pb2.MakeAuthorityRequest(), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise BadCertificate(
                f"node {request.node_id[:12]} made no authority "
                f"({kakeya_error(error, request.node_id[:12])})",
                "see that it runs, and try again",
            ) from error
        authority = keeping.trust.name_keeper(request.node_id, made.certificate)
        await keeping.spread()
        return trust_pb2.AddKeeperResponse(authority_id=authority)

    async def AllowRoles(  # noqa: N802
        self,
        request: trust_pb2.AllowRolesRequest,
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.AllowRolesResponse:
        """Raises `NoAuthority`, `NotAKeeper`, `NodeNotFound`, `MalformedMessage`."""
        keeping = self._keeping()
        keeping.require_keeper()
        if request.any and request.roles:
            raise MalformedMessage("every role is allowed, or those that are named")
        roles = roles_from_wire(request.roles)
        if len(roles) < len(set(request.roles)):
            raise MalformedMessage("a role that this node does not know")
        self._known.state(request.node_id)
        keeping.trust.allow_roles(request.node_id, None if request.any else roles)
        return trust_pb2.AllowRolesResponse(told_count=await keeping.spread())

    async def CreateKey(  # noqa: N802
        self,
        request: trust_pb2.CreateKeyRequest,
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.CreateKeyResponse:
        """Raises `NoAuthority`, `NotAKeeper`, `MalformedMessage`, `KeyAmbiguous`, `TooManyKeys`."""
        keeping = self._keeping()
        keeping.require_keeper()
        keys, now = ApplicationKeys(keeping.trust), keeping.trust.now_unix()
        text, made = keys.make(key_from_wire(request, now))
        return trust_pb2.CreateKeyResponse(
            key=text,
            made=key_to_wire(made, keys, now),
            told_count=await keeping.spread(),
        )

    async def ListKeys(  # noqa: N802
        self,
        request: trust_pb2.ListKeysRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.ListKeysResponse:
        """Raises `NoAuthority`."""
        trust = self._keeping().trust
        keys, now = ApplicationKeys(trust), trust.now_unix()
        told = [key_to_wire(each, keys, now) for each in keys.all()]
        told.sort(key=lambda each: each.revoked or each.expired)
        return trust_pb2.ListKeysResponse(keys=told)

    async def RevokeKey(  # noqa: N802
        self,
        request: trust_pb2.RevokeKeyRequest,
        context: Context,  # noqa: ARG002
    ) -> trust_pb2.RevokeKeyResponse:
        """Raises `NoAuthority`, `NotAKeeper`, `KeyNotFound`, `KeyAmbiguous`."""
        keeping = self._keeping()
        keeping.require_keeper()
        keys = ApplicationKeys(keeping.trust)
        key = keys.revoke(request.key)
        return trust_pb2.RevokeKeyResponse(
            revoked=key_to_wire(key, keys, keeping.trust.now_unix()),
            told_count=await keeping.spread(),
        )

    def _keeping(self) -> TrustKeeping:
        if self._kept is None:
            raise NoAuthority(
                "this fleet has no authority",
                "run `fleet init` on its first machine, and `fleet join CODE` on the others",
            )
        return self._kept

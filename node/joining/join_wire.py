"""From the messages of join.proto to values, and back."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from kakeya.v1 import join_pb2 as wire
from kakeya_fleet.fleet.trust.join_code import JoinCodeKind
from kakeya_fleet.node.joining.application import Application, JoinGrantContent
from kakeya_fleet.node.joining.join_messages import IssuerHello, JoinerHello, JoinerProof
from kakeya_fleet.node.rpc.refusals import MalformedMessage

_KINDS = {
    JoinCodeKind.SHORT: wire.JOIN_CODE_KIND_SHORT,
    JoinCodeKind.LONG: wire.JOIN_CODE_KIND_LONG,
}
_KINDS_BACK = {number: kind for kind, number in _KINDS.items()}


def joiner_hello_to_wire(hello: JoinerHello) -> wire.JoinRequest:
    """The first request."""
    return wire.JoinRequest(
        hello=wire.JoinerHello(
            protocol_min=hello.protocol_min,
            protocol_max=hello.protocol_max,
            code_kind=_KINDS[hello.code_kind],
            nameplate=hello.nameplate,
            node_id=hello.node_id,
            pake_message=hello.pake_message,
        )
    )


def joiner_hello_from_wire(request: wire.JoinRequest) -> JoinerHello:
    """Raises `MalformedMessage` for another step, or a kind of code that this version lacks."""
    if request.WhichOneof("step") != "hello":
        raise MalformedMessage("a join begins with a hello")
    hello = request.hello
    kind = _KINDS_BACK.get(hello.code_kind)
    if kind is None:
        raise MalformedMessage("the hello names no kind of code that this version knows")
    return JoinerHello(
        protocol_min=hello.protocol_min,
        protocol_max=hello.protocol_max,
        code_kind=kind,
        nameplate=hello.nameplate,
        node_id=hello.node_id,
        pake_message=hello.pake_message,
    )


def issuer_hello_to_wire(hello: IssuerHello) -> wire.JoinResponse:
    """The first response."""
    return wire.JoinResponse(
        hello=wire.IssuerHello(
            protocol_version=hello.protocol_version,
            node_id=hello.node_id,
            pake_message=hello.pake_message,
            confirmation=hello.confirmation,
        )
    )


def issuer_hello_from_wire(response: wire.JoinResponse) -> IssuerHello:
    """Raises `MalformedMessage` for another step."""
    if response.WhichOneof("step") != "hello":
        raise MalformedMessage("the issuer answers a hello with a hello")
    hello = response.hello
    return IssuerHello(
        hello.protocol_version, hello.node_id, hello.pake_message, hello.confirmation
    )


def proof_to_wire(proof: JoinerProof) -> wire.JoinRequest:
    """The second request."""
    return wire.JoinRequest(
        proof=wire.JoinerProof(
            confirmation=proof.confirmation, sealed_application=proof.sealed_application
        )
    )


def proof_from_wire(request: wire.JoinRequest) -> JoinerProof:
    """Raises `MalformedMessage` for another step."""
    if request.WhichOneof("step") != "proof":
        raise MalformedMessage("behind the hello comes the application")
    return JoinerProof(request.proof.confirmation, request.proof.sealed_application)


def sealed_grant_to_wire(sealed: bytes) -> wire.JoinResponse:
    """The second response."""
    return wire.JoinResponse(grant=wire.SealedGrant(sealed_grant=sealed))


def sealed_grant_from_wire(response: wire.JoinResponse) -> bytes:
    """Raises `MalformedMessage` for another step."""
    if response.WhichOneof("step") != "grant":
        raise MalformedMessage("the issuer answers an application with a grant")
    return response.grant.sealed_grant


def application_to_bytes(application: Application) -> bytes:
    """What is sealed."""
    return wire.JoinApplication(
        certificate_request=application.certificate_request,
        public_key=application.public_key,
        name=application.name,
        signature=application.signature,
    ).SerializeToString()


def application_from_bytes(data: bytes) -> Application:
    """Raises `MalformedMessage`."""
    told = wire.JoinApplication()
    try:
        told.ParseFromString(data)
    except DecodeError as error:
        raise MalformedMessage("the application cannot be read") from error
    return Application(told.certificate_request, told.public_key, told.name, told.signature)


def grant_to_bytes(grant: JoinGrantContent) -> bytes:
    """What is sealed."""
    return wire.JoinGrant(
        certificate=grant.certificate,
        statements=grant.statements,
        fleet_name=grant.fleet_name,
        fleet_id=grant.fleet_id,
        peers=grant.peers,
    ).SerializeToString()


def grant_from_bytes(data: bytes) -> JoinGrantContent:
    """Raises `MalformedMessage`."""
    told = wire.JoinGrant()
    try:
        told.ParseFromString(data)
    except DecodeError as error:
        raise MalformedMessage("the grant cannot be read") from error
    return JoinGrantContent(
        certificate=told.certificate,
        statements=tuple(told.statements),
        fleet_name=told.fleet_name,
        fleet_id=told.fleet_id,
        peers=tuple(told.peers),
    )

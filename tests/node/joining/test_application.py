from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.node.joining.application import (
    JoinGrantContent,
    VerifiedApplication,
    check_grant,
    signed_application,
    verified,
)
from kakeya_fleet.node.joining.join_wire import (
    application_from_bytes,
    application_to_bytes,
    grant_from_bytes,
    grant_to_bytes,
)
from kakeya_fleet.node.membership.identity import Identity, verifies
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from tests.node.joining.conftest import Authority, RequestOf

EXCHANGE = b"t" * 32


def test_an_application_is_signed_as_the_contract_says(
    identity: Identity, request_of: RequestOf
) -> None:
    request = request_of(identity.node_id)
    application = signed_application(identity, "mini-2", request, EXCHANGE)
    message = b"kakeya.v1.join" + EXCHANGE + request
    assert verifies(identity.public_key, message, application.signature)
    assert application_from_bytes(application_to_bytes(application)) == application
    assert verified(application, identity.node_id, EXCHANGE, "ipv4:1") == VerifiedApplication(
        identity.node_id, identity.public_key, "mini-2", request, "ipv4:1"
    )


def test_it_is_good_for_its_node_and_its_exchange_alone(
    identity: Identity, request_of: RequestOf
) -> None:
    application = signed_application(identity, "mini-2", request_of(identity.node_id), EXCHANGE)
    with pytest.raises(MalformedMessage, match="another node id"):
        verified(application, "aa" * 32, EXCHANGE, "")
    with pytest.raises(MalformedMessage, match="for this exchange"):
        verified(application, identity.node_id, b"u" * 32, "")
    other = replace(application, certificate_request=request_of(identity.node_id))
    with pytest.raises(MalformedMessage, match="for this exchange"):
        verified(other, identity.node_id, EXCHANGE, "")


@pytest.mark.parametrize("name", ["", "x" * 257, "a\x1b[2Jb"])
def test_a_name_that_no_card_could_have_is_refused(
    identity: Identity, request_of: RequestOf, name: str
) -> None:
    application = signed_application(identity, name, request_of(identity.node_id), EXCHANGE)
    with pytest.raises(MalformedMessage, match="printable"):
        verified(application, identity.node_id, EXCHANGE, "")


def _flipped(request: bytes) -> bytes:
    return request[:-1] + bytes((request[-1] ^ 1,))


@pytest.mark.parametrize(
    "change", [_flipped, lambda request: b"", lambda request: request + bytes(9000)]
)
def test_a_request_that_its_own_key_did_not_sign_is_refused(
    identity: Identity, request_of: RequestOf, change: Callable[[bytes], bytes]
) -> None:
    request = change(request_of(identity.node_id))
    application = signed_application(identity, "mini-2", request, EXCHANGE)
    with pytest.raises(MalformedMessage, match="by its own key"):
        verified(application, identity.node_id, EXCHANGE, "")


@pytest.fixture
def granted(
    identity: Identity, request_of: RequestOf, authority: Authority
) -> tuple[JoinGrantContent, bytes]:
    request = request_of(identity.node_id)
    application = signed_application(identity, "mini-2", request, EXCHANGE)
    return authority.grant(verified(application, identity.node_id, EXCHANGE, "")), request


def test_a_grant_within_its_bounds_comes_as_it_was_made(
    granted: tuple[JoinGrantContent, bytes],
) -> None:
    grant, request = granted
    check_grant(grant, request)
    assert grant_from_bytes(grant_to_bytes(grant)) == grant


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"certificate": bytes(9000)}, "too long"),
        ({"certificate": b""}, "another key"),
        ({"statements": (b"",) * 1025}, "1024 statements"),
        ({"peers": ("127.0.0.1:1",) * 65}, "64 peers"),
        ({"peers": ("nowhere",)}, "of the peers"),
        ({"fleet_name": "a\nb"}, "not printable"),
        ({"fleet_id": "f" * 129}, "too long"),
    ],
)
def test_a_grant_past_its_bounds_is_refused(
    granted: tuple[JoinGrantContent, bytes], fields: dict[str, object], said: str
) -> None:
    grant, request = granted
    with pytest.raises(MalformedMessage, match=said):
        check_grant(replace(grant, **fields), request)  # type: ignore[arg-type]


def test_bytes_that_are_neither_are_malformed() -> None:
    for read in (application_from_bytes, grant_from_bytes):
        with pytest.raises(MalformedMessage):
            read(b"\xff" * 8)

"""The exchange without sockets, and those who stand between the two sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.errors import JoinCodeWrong, ProtocolSkew
from kakeya_fleet.fleet.trust.join_code import JoinCode, JoinCodeKind
from kakeya_fleet.node.joining.join_exchange import IssuerExchange, JoinerExchange, check_hello
from kakeya_fleet.node.joining.join_messages import IssuerHello, JoinerHello, JoinerProof
from kakeya_fleet.node.rpc.refusals import MalformedMessage

JOINER, ISSUER, OTHER = "aa" * 32, "bb" * 32, "cc" * 32
SECRET = b"456789"
CODE = JoinCode(JoinCodeKind.SHORT, "123", SECRET)


def answered(joiner: JoinerExchange, secret: bytes = SECRET) -> IssuerExchange:
    check_hello(joiner.hello)
    return IssuerExchange(joiner.hello, secret, ISSUER)


@pytest.mark.parametrize("kind", JoinCodeKind)
def test_both_sides_of_one_code_understand_each_other(kind: JoinCodeKind) -> None:
    joiner = JoinerExchange(JoinCode(kind, "123", b"s" * 16), JOINER)
    issuer = answered(joiner, b"s" * 16)
    joiner.receive(issuer.hello)
    assert joiner.transcript_hash == issuer.transcript_hash
    assert len(joiner.transcript_hash) == 32
    proof = joiner.prove(b"application")
    assert b"application" not in proof.sealed_application
    assert issuer.open_application(proof) == b"application"
    assert joiner.open_grant(issuer.seal_grant(b"grant")) == b"grant"


def test_a_wrong_code_is_seen_by_the_joiner_at_once() -> None:
    joiner = JoinerExchange(CODE, JOINER)
    with pytest.raises(JoinCodeWrong):
        joiner.receive(answered(joiner, b"456788").hello)
    # It has nothing to send from which anybody could learn more.
    with pytest.raises(RuntimeError):
        joiner.prove(b"application")


def test_a_wrong_code_is_seen_by_the_issuer_whatever_the_joiner_makes_of_it() -> None:
    guesser = JoinerExchange(replace(CODE, secret=b"000000"), JOINER)
    issuer = answered(guesser)
    for confirmation in (b"", bytes(32), issuer.hello.confirmation):
        with pytest.raises(JoinCodeWrong):
            issuer.open_application(JoinerProof(confirmation, bytes(64)))


def test_the_two_codes_of_an_invitation_are_not_each_others() -> None:
    joiner = JoinerExchange(replace(CODE, kind=JoinCodeKind.LONG), JOINER)
    swapped = replace(joiner.hello, code_kind=JoinCodeKind.SHORT)
    with pytest.raises(JoinCodeWrong):
        joiner.receive(IssuerExchange(swapped, SECRET, ISSUER).hello)


Change = Callable[[IssuerHello], IssuerHello]


@pytest.mark.parametrize(
    "change",
    [
        lambda hello: replace(hello, node_id=OTHER),
        lambda hello: replace(hello, confirmation=bytes(32)),
        lambda hello: replace(hello, confirmation=hello.confirmation[:16]),
        lambda hello: replace(hello, confirmation=b""),
        lambda hello: replace(
            hello, pake_message=IssuerExchange(relayed(), b"", ISSUER).hello.pake_message
        ),
    ],
)
def test_an_answer_that_was_changed_is_not_believed(change: Change) -> None:
    joiner = JoinerExchange(CODE, JOINER)
    hello = answered(joiner).hello
    with pytest.raises(JoinCodeWrong):
        joiner.receive(change(hello))


def relayed() -> JoinerHello:
    return JoinerExchange(CODE, JOINER).hello


@pytest.mark.parametrize(
    "change",
    [
        lambda hello: replace(hello, node_id=OTHER),
        lambda hello: replace(hello, nameplate="124"),
        lambda hello: replace(hello, protocol_max=2),
        lambda hello: replace(hello, pake_message=relayed().pake_message),
    ],
)
def test_a_man_in_the_middle_who_changes_a_hello_ends_the_join(
    change: Callable[[JoinerHello], JoinerHello],
) -> None:
    joiner = JoinerExchange(CODE, JOINER)
    issuer = IssuerExchange(change(joiner.hello), SECRET, ISSUER)
    with pytest.raises(JoinCodeWrong):
        joiner.receive(issuer.hello)


def test_one_who_relays_and_puts_in_an_id_of_their_own_is_seen_by_both_sides() -> None:
    joiner = JoinerExchange(CODE, JOINER)
    issuer = IssuerExchange(replace(joiner.hello, node_id=OTHER), SECRET, ISSUER)
    with pytest.raises(JoinCodeWrong):
        joiner.receive(replace(issuer.hello, node_id=OTHER))
    with pytest.raises(JoinCodeWrong):
        issuer.open_application(JoinerProof(issuer.hello.confirmation, bytes(64)))


def test_ids_that_changed_places_are_not_the_same_exchange() -> None:
    joiner = JoinerExchange(CODE, JOINER)
    swapped = IssuerExchange(replace(joiner.hello, node_id=ISSUER), SECRET, JOINER)
    with pytest.raises(JoinCodeWrong):
        joiner.receive(replace(swapped.hello, node_id=ISSUER))


def test_ones_own_id_and_ones_own_message_are_no_other_side() -> None:
    joiner = JoinerExchange(CODE, JOINER)
    with pytest.raises(MalformedMessage):
        IssuerExchange(replace(joiner.hello, node_id=ISSUER), SECRET, ISSUER)
    issuer = answered(joiner)
    with pytest.raises(MalformedMessage):
        joiner.receive(replace(issuer.hello, node_id=JOINER))
    reflected = joiner.hello.pake_message
    for message in (reflected, b"B" + reflected[1:]):
        joiner = JoinerExchange(CODE, JOINER, lambda count: bytes(range(count)))
        own = b"B" + joiner.hello.pake_message[1:]
        with pytest.raises(MalformedMessage):
            joiner.receive(
                replace(issuer.hello, pake_message=own if message[:1] == b"B" else message)
            )


ZERO = (1).to_bytes(32, "little")
NOT_CANONICAL_ZERO = (2**255 - 19 + 1).to_bytes(32, "little")
ORDER_TWO = (2**255 - 20).to_bytes(32, "little")
ORDER_FOUR = bytes(32)
OFF_THE_CURVE = (2).to_bytes(32, "little")


@pytest.mark.parametrize(
    "point", [ZERO, NOT_CANONICAL_ZERO, ORDER_TWO, ORDER_FOUR, OFF_THE_CURVE, b"\xff" * 32]
)
def test_points_that_no_honest_side_sends_are_refused(point: bytes) -> None:
    joiner = JoinerExchange(CODE, JOINER)
    with pytest.raises(MalformedMessage):
        IssuerExchange(replace(joiner.hello, pake_message=b"A" + point), SECRET, ISSUER)
    with pytest.raises(MalformedMessage):
        joiner.receive(replace(answered(joiner).hello, pake_message=b"B" + point))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_for_a_message_are_malformed_or_a_wrong_code(message: bytes) -> None:
    joiner = JoinerExchange(CODE, JOINER, lambda count: bytes(range(count)))
    hello = replace(joiner.hello, pake_message=message)
    with pytest.raises(MalformedMessage):
        check_hello(hello)
        IssuerExchange(hello, SECRET, ISSUER)
    with pytest.raises((MalformedMessage, JoinCodeWrong)):
        joiner.receive(IssuerHello(1, ISSUER, message, bytes(32)))


@pytest.mark.parametrize("node_id", ["", "AA" * 32, "aa" * 31, "../" + "a" * 61, "ä" * 64])
def test_an_id_that_is_none_is_malformed(node_id: str) -> None:
    joiner = JoinerExchange(CODE, JOINER)
    with pytest.raises(MalformedMessage):
        check_hello(replace(joiner.hello, node_id=node_id))
    with pytest.raises(MalformedMessage):
        joiner.receive(replace(answered(joiner).hello, node_id=node_id))


def test_versions_that_do_not_meet_are_told() -> None:
    joiner = JoinerExchange(CODE, JOINER)
    with pytest.raises(ProtocolSkew):
        check_hello(replace(joiner.hello, protocol_min=2, protocol_max=3))
    with pytest.raises(ProtocolSkew):
        joiner.receive(replace(answered(joiner).hello, protocol_version=9))


@pytest.fixture
def confirmed() -> tuple[JoinerExchange, IssuerExchange]:
    joiner = JoinerExchange(CODE, JOINER)
    issuer = answered(joiner)
    joiner.receive(issuer.hello)
    return joiner, issuer


Pair = tuple[JoinerExchange, IssuerExchange]


def test_a_sealed_message_that_was_changed_or_cut_is_refused(confirmed: Pair) -> None:
    joiner, issuer = confirmed
    proof = joiner.prove(b"application")
    sealed = proof.sealed_application
    with pytest.raises(MalformedMessage):
        issuer.open_application(replace(proof, sealed_application=sealed[:-1]))
    grant = bytearray(issuer.seal_grant(b"grant"))
    grant[0] ^= 1
    for changed in (bytes(grant), b"", bytes(grant[:10])):
        with pytest.raises(MalformedMessage):
            joiner.open_grant(changed)


def test_a_message_is_taken_once_and_not_by_its_own_sender(confirmed: Pair) -> None:
    joiner, issuer = confirmed
    proof = joiner.prove(b"application")
    with pytest.raises(MalformedMessage):
        joiner.open_grant(proof.sealed_application)
    assert issuer.open_application(proof) == b"application"
    with pytest.raises(MalformedMessage):
        issuer.open_application(proof)
    first = issuer.seal_grant(b"grant")
    assert joiner.open_grant(first) == b"grant"
    assert issuer.seal_grant(b"grant") != first


def test_what_was_recorded_opens_no_other_exchange(confirmed: Pair) -> None:
    joiner, issuer = confirmed
    proof = joiner.prove(b"application")
    assert issuer.open_application(proof) == b"application"
    again = IssuerExchange(joiner.hello, SECRET, ISSUER)
    assert again.hello != issuer.hello
    with pytest.raises(JoinCodeWrong):
        again.open_application(proof)


def test_a_hello_is_fresh_and_blinded_by_its_code() -> None:
    def fixed(count: int) -> bytes:
        return bytes(range(count))

    one = JoinerExchange(CODE, JOINER, fixed).hello
    assert JoinerExchange(CODE, JOINER, fixed).hello == one
    assert JoinerExchange(CODE, JOINER).hello.pake_message != one.pake_message
    other = JoinerExchange(replace(CODE, secret=b"000000"), JOINER, fixed).hello
    assert other.pake_message != one.pake_message

"""Nobody is taken for a member of a group who does not know its nonce, nor for another rank."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Never

import pytest

from kakeya_fleet.node.roles.groups.rank_environment import BadEnvironment, RankEnvironment
from kakeya_fleet.node.roles.groups.rank_proof import (
    CHALLENGE_BYTES,
    DIGEST_BYTES,
    REPLY_BYTES,
    Claim,
    NotProven,
    Purpose,
    prove_to_leader,
    prove_to_rank,
)

NONCE, OTHER = b"n" * 32, b"o" * 32
MINE, THEIRS = b"m" * CHALLENGE_BYTES, b"t" * CHALLENGE_BYTES


def exactly(connection: socket.socket) -> Callable[[int], bytes]:
    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    return read


def meet(
    rank_nonce: bytes, leader_nonce: bytes, claim: Claim, rank_count: int = 2
) -> tuple[Claim | NotProven, NotProven | EOFError | None]:
    """(what the leader found, what the rank found); an exception stands for itself."""
    ours, theirs = socket.socketpair()
    found: list[Claim | NotProven] = []

    def lead() -> None:
        try:
            found.append(prove_to_rank(leader_nonce, rank_count, MINE, exactly(ours), ours.sendall))
        except NotProven as error:
            found.append(error)
        ours.close()

    leader = threading.Thread(target=lead)
    leader.start()
    result: NotProven | EOFError | None = None
    with theirs:
        try:
            prove_to_leader(rank_nonce, claim, THEIRS, exactly(theirs), theirs.sendall)
        except (NotProven, EOFError) as error:
            result = error
    leader.join()
    return found[0], result


def test_both_ends_prove_what_they_are() -> None:
    claim = Claim(Purpose.PULSE, 1)
    assert meet(NONCE, NONCE, claim) == (claim, None)


@pytest.mark.parametrize("nonces", [(OTHER, NONCE), (NONCE, OTHER)])
def test_another_nonce_is_refused_before_the_leader_says_anything(
    nonces: tuple[bytes, bytes],
) -> None:
    found, result = meet(*nonces, Claim(Purpose.COMMANDS, 0))
    assert isinstance(found, NotProven)
    assert isinstance(result, EOFError)


def test_a_rank_that_is_none_of_the_group_is_refused() -> None:
    found, _ = meet(NONCE, NONCE, Claim(Purpose.COMMANDS, 2))
    assert isinstance(found, NotProven)


def recorded_reply() -> bytes:
    """What rank 1 once answered to the challenge `MINE`."""
    sent: list[bytes] = []
    with pytest.raises(EOFError):
        prove_to_leader(
            NONCE,
            Claim(Purpose.PULSE, 1),
            THEIRS,
            lambda count: MINE if not sent else _end(),
            sent.append,
        )
    return b"".join(sent)


def _end() -> Never:
    raise EOFError


@pytest.mark.parametrize("place", [0, 1, 2, 10, REPLY_BYTES - 1])
def test_no_byte_of_a_reply_can_be_another(place: int) -> None:
    reply = bytearray(recorded_reply())
    assert prove_to_rank(NONCE, 2, MINE, lambda _: bytes(reply), lambda _: None) == Claim(
        Purpose.PULSE, 1
    )
    reply[place] ^= 1
    with pytest.raises(NotProven):
        prove_to_rank(NONCE, 2, MINE, lambda _: bytes(reply), lambda _: None)


def test_what_was_answered_once_is_no_answer_to_the_next_challenge() -> None:
    reply = recorded_reply()
    with pytest.raises(NotProven):
        prove_to_rank(NONCE, 2, THEIRS, lambda _: reply, lambda _: None)


def test_a_leader_that_echoes_is_no_leader() -> None:
    sent: list[bytes] = []

    def read(count: int) -> bytes:
        return sent[-1][-DIGEST_BYTES:] if sent else THEIRS

    with pytest.raises(NotProven):
        prove_to_leader(NONCE, Claim(Purpose.COMMANDS, 0), THEIRS, read, sent.append)


def test_what_a_rank_is_told_survives_its_environment() -> None:
    own = RankEnvironment(NONCE, "fe80::1", 7, rank=1, size=3, port_count=2, parent=12)
    variables = own.variables()
    assert not any(NONCE.hex() in value for value in variables.values())
    told = variables | {"KAKEYA_GROUP_NONCE": NONCE.hex()}
    assert RankEnvironment.read(told) == own
    del told["KAKEYA_GROUP_RANK"]
    with pytest.raises(BadEnvironment):
        RankEnvironment.read(told)
    assert RankEnvironment.read(told | {"MLX_RANK": "2"}).rank == 2

"""Keepers and revocations, in any order and over any ways: the same ones hold."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.fleet.trust import ledger as ledgers
from kakeya_fleet.fleet.trust.keys import ApplicationKey, digest_of
from kakeya_fleet.fleet.trust.ledger import Ledger
from kakeya_fleet.fleet.trust.statements import (
    AllowedRoles,
    Keeper,
    KeyRevocation,
    Revocation,
    Says,
    Statement,
    statement_message,
)
from tests.support.breadth import again

FLEET = "authority-0"


def sign(signer: int, message: bytes) -> bytes:
    return hashlib.sha256(f"certificate-{signer}".encode() + message).digest()


def verify(certificate: bytes, message: bytes, signature: bytes) -> bool:
    return hashlib.sha256(certificate + message).digest() == signature


def said(signer: int, says: Says) -> Statement:
    body = repr((type(says).__name__, _told(says))).encode()
    return Statement(says, body, f"authority-{signer}", sign(signer, statement_message(body)))


def _told(says: Says) -> object:
    match says:
        case Revocation():
            return says.node_id, sorted(says.upheld)
        case ApplicationKey():
            return says.digest, says.tokens_per_minute
        case KeyRevocation():
            return says.key_id
        case AllowedRoles():
            roles = None if says.roles is None else sorted(says.roles)
            return says.node_id, roles, sorted(says.replaced)
    return says.node_id


def key(signer: int, number: int, tokens_per_minute: int = 0) -> Statement:
    made = ApplicationKey(
        f"key-{number}", digest_of(f"{number}"), tokens_per_minute=tokens_per_minute
    )
    return said(signer, made)


def key_revocation(signer: int, number: int) -> Statement:
    return said(signer, KeyRevocation(id_of_key(number)))


def id_of_key(number: int) -> str:
    return digest_of(f"{number}").hex()[:16]


def keeper(signer: int, node: int) -> Statement:
    return said(signer, Keeper(f"node-{node}", f"authority-{node}", f"certificate-{node}".encode()))


def revocation(signer: int, node: int, *upheld: Statement) -> Statement:
    return said(signer, Revocation(f"node-{node}", frozenset(each.digest for each in upheld)))


def roles(signer: int, node: int, allowed: set[Role] | None, *replaced: Statement) -> Statement:
    digests = frozenset(each.digest for each in replaced)
    kept = None if allowed is None else frozenset(allowed)
    return said(signer, AllowedRoles(f"node-{node}", kept, digests))


def ledger(*statements: Statement) -> Ledger:
    return Ledger(FLEET, verify, (keeper(0, 0), *statements))


def members(known: Ledger) -> set[str]:
    return {each.node_id for each in known.keepers.values()}


def test_a_keeper_is_who_was_named_by_one() -> None:
    known = ledger(keeper(2, 3), keeper(1, 2), keeper(0, 1), keeper(7, 8))
    assert members(known) == {"node-0", "node-1", "node-2", "node-3"}
    assert len(known.statements) == 4
    assert known.authorities == tuple(f"certificate-{node}".encode() for node in range(4))


def test_what_another_key_signed_is_nobodys_word() -> None:
    genuine = revocation(0, 5)
    forged = Statement(genuine.says, genuine.body, genuine.signer, sign(4, genuine.message))
    known = ledger()
    assert not known.merge([forged])
    assert not known.revoked
    assert known.merge([genuine])
    assert known.revoked == {"node-5"}


def test_of_a_keeper_that_is_out_what_was_upheld_holds_alone() -> None:
    first, later = keeper(1, 2), keeper(1, 3)
    known = ledger(keeper(0, 1), first, revocation(0, 1, first))
    known.merge([later, revocation(1, 0)])
    assert members(known) == {"node-0", "node-2"}
    assert known.revoked == {"node-1"}


def test_two_that_put_each_other_out_are_not_both_out() -> None:
    known = ledger(keeper(0, 1), keeper(1, 2), revocation(2, 1), revocation(1, 2))
    assert members(known) == {"node-0", "node-1"}


def test_a_junior_can_put_out_a_senior_that_says_nothing_against_it() -> None:
    junior = keeper(0, 1)
    known = ledger(junior, revocation(1, 0, keeper(0, 0), junior))
    assert members(known) == {"node-1"}
    assert known.revoked == {"node-0"}


def test_a_revocation_that_lost_its_force_takes_nothing_with_it() -> None:
    senior, junior, named = keeper(0, 1), keeper(1, 2), keeper(1, 3)
    known = ledger(senior, junior, named, revocation(2, 1))
    # Node 2 was named by the one that it put out, which upheld nothing of that.
    assert members(known) == {"node-0"}
    known.merge([revocation(0, 2)])
    assert members(known) == {"node-0", "node-1", "node-3"}


def test_a_key_is_in_force_until_a_keeper_revokes_it() -> None:
    known = ledger(keeper(0, 1), key(1, 1), key(0, 2))
    assert {each.name for each in known.keys.values()} == {"key-1", "key-2"}
    known.merge([key_revocation(0, 1)])
    assert known.revoked_keys == {id_of_key(1)}
    # What nobody says who was ever a keeper makes no key, and revokes none.
    known.merge([key(7, 3), key_revocation(7, 2)])
    assert digest_of("3") not in known.keys
    assert known.revoked_keys == {id_of_key(1)}


def test_of_a_keeper_that_is_out_the_keys_hold_that_were_upheld() -> None:
    before, later = key(1, 1), key(1, 2)
    known = ledger(keeper(0, 1), before, revocation(0, 1, before), later)
    assert {each.name for each in known.keys.values()} == {"key-1"}
    assert not ledger(keeper(0, 1), before, revocation(0, 1)).keys


def test_of_two_that_say_something_of_one_key_the_senior_is_believed() -> None:
    known = ledger(keeper(0, 1), key(1, 1, tokens_per_minute=0), key(0, 1, tokens_per_minute=5))
    assert known.keys[digest_of("1")].tokens_per_minute == 5


def test_a_node_may_serve_every_role_until_a_keeper_says_less() -> None:
    known = ledger()
    assert known.allowed_roles("node-5") is None
    first = roles(0, 5, {Role.PROPOSER})
    known.merge([first])
    assert known.allowed_roles("node-5") == frozenset({Role.PROPOSER})
    assert known.allowed_roles("node-6") is None
    second = roles(0, 5, set(), first)
    known.merge([second])
    assert known.allowed_roles("node-5") == frozenset()
    known.merge([roles(0, 5, None, second)])
    assert known.allowed_roles("node-5") is None
    # Nobody else's word counts.
    known.merge([roles(7, 5, {Role.ARCHIVE})])
    assert known.allowed_roles("node-5") is None


def test_of_two_that_knew_nothing_of_each_other_holds_what_both_allow() -> None:
    one = roles(0, 5, {Role.PROPOSER, Role.ARCHIVE})
    other = roles(1, 5, {Role.PROPOSER, Role.VERIFIER})
    known = ledger(keeper(0, 1), one, other, roles(1, 6, None, one))
    # What is said of another node takes the place of nothing.
    assert known.allowed_roles("node-5") == frozenset({Role.PROPOSER})
    known.merge([roles(1, 5, {Role.VERIFIER}, one, other)])
    assert known.allowed_roles("node-5") == frozenset({Role.VERIFIER})


def test_of_a_keeper_that_is_out_the_word_of_roles_is_lost_and_what_it_replaced_holds() -> None:
    first = roles(0, 5, {Role.PROPOSER})
    stolen = roles(1, 5, None, first)
    known = ledger(keeper(0, 1), first, stolen)
    assert known.allowed_roles("node-5") is None
    known.merge([revocation(0, 1)])
    assert known.allowed_roles("node-5") == frozenset({Role.PROPOSER})


def test_a_fleet_without_its_first_keepers_word_is_none() -> None:
    with pytest.raises(StatementRejected, match="first keeper"):
        Ledger(FLEET, verify, [keeper(0, 1)])
    with pytest.raises(StatementRejected, match="first keeper"):
        # Somebody else's key, by the first keeper's name.
        Ledger("authority-9", verify, [keeper(0, 0)])


def test_there_is_an_end_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    most, most_of_keys, most_of_roles = 40, 60, 50
    monkeypatch.setattr(ledgers, "MAX_STATEMENTS", most)
    monkeypatch.setattr(ledgers, "MAX_KEY_STATEMENTS", most_of_keys)
    monkeypatch.setattr(ledgers, "MAX_ROLE_STATEMENTS", most_of_roles)
    known = ledger()
    with pytest.raises(StatementRejected, match="at most"):
        known.merge([revocation(0, node) for node in range(1, most + 2)])
    assert len(known.statements) == 1
    known.merge([revocation(0, node) for node in range(1, most)])
    assert len(known.statements) == most
    # Keys leave room for the rest, and the rest for them.
    every = [key(0, number) for number in range(most_of_keys + 1)]
    with pytest.raises(StatementRejected, match="of keys"):
        known.merge(every)
    assert known.merge(every[:-1])
    said_of_roles = [roles(0, node, set()) for node in range(most_of_roles + 1)]
    with pytest.raises(StatementRejected, match="of roles"):
        known.merge(said_of_roles)
    assert known.merge(said_of_roles[:-1])


@st.composite
def sentences(draw: st.DrawFn) -> Sequence[Statement]:
    found = [keeper(draw(st.integers(0, node - 1)), node) for node in range(1, 6)]
    for _ in range(draw(st.integers(0, 6))):
        signer, node = draw(st.integers(0, 5)), draw(st.integers(0, 6))
        upheld = draw(st.lists(st.sampled_from(found), max_size=3))
        found.append(revocation(signer, node, *upheld))
    for _ in range(draw(st.integers(0, 6))):
        signer, number = draw(st.integers(0, 5)), draw(st.integers(0, 2))
        rate, is_end = draw(st.integers(0, 1)), draw(st.booleans())
        found.append(key_revocation(signer, number) if is_end else key(signer, number, rate))
    for _ in range(draw(st.integers(0, 6))):
        allowed = draw(st.none() | st.sets(st.sampled_from(Role)))
        replaced = draw(st.lists(st.sampled_from(found), max_size=3))
        found.append(roles(draw(st.integers(0, 5)), draw(st.integers(0, 2)), allowed, *replaced))
    return found


@again(2)
@settings(max_examples=50)
@given(sentences(), st.integers(0, 2**32), st.integers(1, 4))
def test_the_order_and_the_ways_of_statements_change_nothing(
    found: Sequence[Statement], seed: int, ways: int
) -> None:
    at_once = ledger(*found)
    random = Random(seed)
    others = [ledger() for _ in range(ways)]
    for statement in found:
        random.choice(others).merge([statement])
    # What came before whoever signed it is named was not taken: it comes again.
    for one in others:
        one.merge(random.choice(others).statements)
        one.merge(random.sample(found, len(found)))
    for other in others:
        assert other.root_hash() == at_once.root_hash()
        assert other.judged == at_once.judged
    assert not at_once.merge(found)

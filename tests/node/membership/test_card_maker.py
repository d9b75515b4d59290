from typing import Never

import pytest

from kakeya_fleet.fleet.cards.card import Accelerator, ModelKind, ModelOffer, Role
from kakeya_fleet.fleet.cards.rules import check_card
from kakeya_fleet.fleet.cards.signed_message import card_message, left_message
from kakeya_fleet.fleet.membership.record import version_of
from kakeya_fleet.node.config.machine import Machine, host_id_of, machine, memory_free_bytes
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.errors import StateUnwritable
from kakeya_fleet.node.membership.card_maker import RESERVED_INCARNATIONS, CardFacts, CardMaker
from kakeya_fleet.node.membership.identity import verifies

NGRAM = ModelOffer("ngram", Role.PROPOSER, ModelKind.NGRAM)


@pytest.fixture
def state(tmp_path):
    state = StateDirectory(tmp_path / "state")
    yield state
    state.close()


@pytest.fixture
def maker(identity, state):
    facts = CardFacts(
        name="mini-1",
        fleet_name="default",
        boot_id="boot",
        addresses=("127.0.0.1:7100",),
        machine=Machine("linux/x86_64", Accelerator("cpu", "processor"), 1 << 33, "ab" * 16),
        memory_free_bytes=1 << 32,
        models=(NGRAM,),
    )
    return CardMaker(identity, state, facts, state.raise_incarnation(), lambda: 1.7e9)


def test_the_card_follows_the_rules_and_is_signed(maker, identity) -> None:
    signed = maker.current
    check_card(signed.card, now_unix=1.7e9)
    assert verifies(identity.public_key, card_message(signed.card_bytes), signed.signature)
    assert (signed.card.incarnation, signed.card.sequence) == (1, 0)
    assert signed.card.software_version == "0.1.0"
    assert signed.card.host_id == "ab" * 16


def test_every_successor_is_newer(maker) -> None:
    versions = [version_of(maker.current)]
    for make in (
        lambda: maker.change((), 1),
        lambda: maker.change((NGRAM,), 2),
        lambda: maker.raise_to(9),
        lambda: maker.raise_to(3),
        lambda: maker.change((), 3),
    ):
        versions.append(version_of(make()))
        assert version_of(maker.current) == versions[-1]
    assert versions == sorted(set(versions))
    assert [version.incarnation for version in versions] == [1, 1, 1, 9, 10, 10]


def test_a_rise_is_durable_before_it_is_announced(maker, state, monkeypatch) -> None:
    assert maker.raise_to(5).card.incarnation == 5
    assert state.raise_incarnation() == 5 + RESERVED_INCARNATIONS

    def full(count: int, above: int = 0) -> Never:
        raise StateUnwritable("the disk is full", f"free it for {count} above {above}")

    monkeypatch.setattr(state, "reserve_incarnations", full)
    before = maker.current
    with pytest.raises(StateUnwritable):
        maker.raise_to(5 + RESERVED_INCARNATIONS)
    assert maker.current is before


def test_a_thousand_refutations_cost_one_write(maker, state, monkeypatch) -> None:
    written: list[int] = []
    reserve = state.reserve_incarnations

    def counted(count: int, above: int = 0) -> range:
        written.append(above)
        return reserve(count, above)

    monkeypatch.setattr(state, "reserve_incarnations", counted)
    for incarnation in range(2, 2 + RESERVED_INCARNATIONS):
        assert maker.raise_to(incarnation).card.incarnation == incarnation
    assert written == [1]
    assert maker.raise_to(3).card.incarnation == 2 + RESERVED_INCARNATIONS
    assert written == [1, 1 + RESERVED_INCARNATIONS]
    assert state.raise_incarnation() > maker.current.card.incarnation


def test_the_farewell_names_the_present_incarnation(maker, identity) -> None:
    maker.raise_to(4)
    message = left_message(identity.node_id, 4)
    assert verifies(identity.public_key, message, maker.farewell())


def test_this_machine_makes_a_card_that_follows_the_rules(identity, state) -> None:
    facts = CardFacts(
        "mini-1", "default", "boot", ("127.0.0.1:1",), machine(), memory_free_bytes(), ()
    )
    card = CardMaker(identity, state, facts, 1, lambda: 1.7e9).current.card
    check_card(card, now_unix=1.7e9)
    assert 0 < card.memory_free_bytes <= card.memory_total_bytes
    assert card.accelerator.kind in {"cpu", "cuda", "metal"}
    assert "/" in card.platform


def test_all_nodes_of_one_running_machine_have_one_host_id_which_does_not_tell_its_name() -> None:
    assert machine().host_id == machine().host_id
    assert len(machine().host_id) == 32
    assert host_id_of("a-boot") != host_id_of("another-boot")
    assert "a-boot" not in host_id_of("a-boot")
    assert host_id_of("") == ""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.cards.rules import CardRule
from kakeya_fleet.fleet.cards.signed_message import left_message
from kakeya_fleet.fleet.errors import CardRejected, NodeNotFound
from kakeya_fleet.fleet.membership.digest import DigestEntry
from kakeya_fleet.fleet.membership.events import ReceivedCard, Source
from kakeya_fleet.fleet.membership.merge_rules import RumourRule
from kakeya_fleet.fleet.membership.registry import MergeResult, Registry
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from scripts.simulator.cards import NOW_UNIX, sign, signed, simulated_card, verify
from tests.support.breadth import again

OWN = 99

cards = st.builds(
    lambda index, incarnation, sequence, boot: signed(
        replace(simulated_card(index), incarnation=incarnation, sequence=sequence, boot_id=boot)
    ),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(["boot-a", "boot-b"]),
)


@st.composite
def rumours(draw: st.DrawFn) -> Rumour:
    card = simulated_card(draw(st.integers(0, 3)))
    incarnation = draw(st.integers(1, 3))
    liveness = draw(st.sampled_from(Liveness))
    signature = sign(card.public_key, left_message(card.node_id, incarnation))
    is_left = liveness is Liveness.LEFT
    return Rumour(card.node_id, incarnation, liveness, signature if is_left else b"")


Piece = tuple[list[SignedCard], list[Rumour]]
pieces = st.tuples(st.lists(cards, max_size=6), st.lists(rumours(), max_size=6))


def fresh() -> Registry:
    return Registry(signed(simulated_card(OWN)), verify, now=0.0)


def tell(registry: Registry, told: Piece) -> Registry:
    registry.merge_cards(told[0], now=1.0, now_unix=NOW_UNIX)
    registry.merge_rumours(told[1], 1.0)
    return registry


def merge_card(registry: Registry, card: SignedCard, *, now: float, now_unix: float) -> bool:
    """Whether the card was new. Raises `CardRejected` when it breaks a rule."""
    result = registry.merge_cards((card,), now=now, now_unix=now_unix)
    for _, rule in result.skipped:
        raise CardRejected(rule, f"card of {card.card.node_id} breaks {rule}")
    return bool(result.merged)


def state(registry: Registry) -> Piece:
    """All registers, as they travel."""
    records = [record for record in registry.records() if record.signed != registry.own]
    return [record.signed for record in records], [record.rumour for record in records]


def join(registries: Sequence[Registry]) -> Registry:
    joined = fresh()
    for registry in registries:
        tell(joined, state(registry))
    return joined


def lines(registry: Registry) -> tuple[DigestEntry, ...]:
    return registry.digest_part(0).lines


def same(one: Registry, other: Registry) -> bool:
    return one.root_hash() == other.root_hash() and set(lines(one)) == set(lines(other))


@again(2)
@given(pieces, pieces, pieces)
@settings(deadline=None, max_examples=40)
def test_merging_states_is_a_join(first: Piece, second: Piece, third: Piece) -> None:
    a, b, c = (tell(fresh(), piece) for piece in (first, second, third))
    assert same(join([a, b]), join([b, a]))
    assert same(join([join([a, b]), c]), join([a, join([b, c])]))
    assert same(join([a, a]), a)
    assert same(join([a, b, a, c, b]), join([c, b, a]))


@again(2)
@given(st.lists(cards, max_size=8), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_cards_give_the_same_registers_in_any_order_and_grouping(
    batch: list[SignedCard], rng: object
) -> None:
    together = tell(fresh(), (batch, []))
    shuffled = list(batch) * 2
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    apart = fresh()
    for card in shuffled:
        tell(apart, ([card], []))
    assert same(together, apart)
    for card in batch:
        held = together.card(card.card.node_id)
        assert (held.incarnation, held.sequence) >= (card.card.incarnation, card.card.sequence)


@again(2)
@given(st.lists(st.one_of(cards, rumours()), max_size=12))
@settings(deadline=None, max_examples=40)
def test_registers_only_rise(told: list[SignedCard | Rumour]) -> None:
    registry = fresh()
    history: dict[str, list[tuple[int, int, bytes, int]]] = {}
    for item in told:
        tell(registry, ([item], []) if isinstance(item, SignedCard) else ([], [item]))
        for record in registry.records():
            place = history.setdefault(record.signed.card.node_id, [])
            place.append((*record.version, record.liveness))
    for places in history.values():
        for before, after in pairwise(places):
            assert after[:3] >= before[:3]
            assert (after[0], after[3]) >= (before[0], before[3])


def test_bad_cards_are_counted_by_rule_and_the_rest_is_merged(observer: Registry) -> None:
    good = [signed(simulated_card(index)) for index in range(3)]
    oversize = replace(good[2], card_bytes=b"x" * 65537)
    batch: list[ReceivedCard] = [
        signed(replace(simulated_card(10), announced_at_unix=math.nan)),
        good[0],
        signed(replace(simulated_card(11), announced_at_unix=math.inf)),
        signed(replace(simulated_card(12), announced_at_unix=NOW_UNIX + 90000)),
        CardRejected("UNKNOWN_ROLE", "role 17"),
        good[1],
        signed(replace(simulated_card(13), node_id="")),
        oversize,
        signed(replace(simulated_card(14), fleet_name="other")),
        replace(signed(simulated_card(15)), signature=b"forged"),
        signed(replace(simulated_card(16), node_id=good[0].card.node_id)),
        good[2],
    ]
    result = observer.merge_cards(batch, now=1.0, now_unix=NOW_UNIX)
    assert result.merged == tuple(card.card.node_id for card in good)
    assert result.skipped == (
        (0, "BAD_STAMP"),
        (2, "BAD_STAMP"),
        (3, "FUTURE_STAMP"),
        (4, "UNKNOWN_ROLE"),
        (6, "EMPTY_NODE_ID"),
        (7, "OVERSIZE"),
        (8, "WRONG_FLEET"),
        (9, "BAD_SIGNATURE"),
        (10, "WRONG_NODE_ID"),
    )


def test_oversize_is_refused_before_anything_is_verified() -> None:
    calls: list[bytes] = []

    def counting(public_key: bytes, message: bytes, signature: bytes) -> bool:
        calls.append(message)
        return verify(public_key, message, signature)

    registry = Registry(signed(simulated_card(OWN)), counting, now=0.0)
    huge = replace(signed(simulated_card(1)), card_bytes=b"x" * 65537)
    with pytest.raises(CardRejected) as caught:
        merge_card(registry, huge, now=0.0, now_unix=NOW_UNIX)
    assert caught.value.rule == CardRule.OVERSIZE
    assert calls == []


def test_a_signature_is_verified_only_for_a_newer_version() -> None:
    calls: list[bytes] = []

    def counting(public_key: bytes, message: bytes, signature: bytes) -> bool:
        calls.append(message)
        return verify(public_key, message, signature)

    registry = Registry(signed(simulated_card(OWN)), counting, now=0.0)
    newer = signed(replace(simulated_card(1), sequence=5))
    assert merge_card(registry, newer, now=0.0, now_unix=NOW_UNIX)
    assert len(calls) == 1
    older = signed(replace(simulated_card(1), sequence=4))
    for _ in range(3):
        assert not merge_card(registry, newer, now=0.0, now_unix=NOW_UNIX)
        assert not merge_card(registry, older, now=0.0, now_unix=NOW_UNIX)
    assert len(calls) == 1


def test_a_replayed_signature_does_not_cover_other_bytes(observer: Registry) -> None:
    original = signed(simulated_card(1))
    forged = replace(signed(replace(simulated_card(1), sequence=9)), signature=original.signature)
    merge_card(observer, original, now=0.0, now_unix=NOW_UNIX)
    result = observer.merge_cards([forged], now=0.0, now_unix=NOW_UNIX)
    assert result.skipped == ((0, "BAD_SIGNATURE"),)
    assert observer.card(original.card.node_id).sequence == 0


def test_the_own_card_is_nobody_elses_to_change(observer: Registry) -> None:
    own = observer.own
    higher = signed(replace(own.card, incarnation=7, boot_id="another"))
    lower = signed(replace(own.card, incarnation=0, boot_id="the past"))
    result = observer.merge_cards([higher, lower, own], now=0.0, now_unix=NOW_UNIX)
    assert observer.own == own
    assert result.own == (higher,)
    assert result.merged == ()
    told = observer.merge_rumours(
        [Rumour(own.card.node_id, own.card.incarnation, Liveness.DEAD)], 0.0
    )
    assert told.accused
    assert observer.liveness(own.card.node_id) is Liveness.ALIVE


def test_two_boot_ids_of_one_incarnation_are_a_clone_in_either_order() -> None:
    one = signed(replace(simulated_card(1), boot_id="one"))
    two = signed(replace(simulated_card(1), boot_id="two"))
    survivors = set()
    for first, second in ((one, two), (two, one)):
        registry = fresh()
        registry.merge_cards([first], now=0.0, now_unix=NOW_UNIX)
        result = registry.merge_cards([second], now=0.0, now_unix=NOW_UNIX)
        assert result.clones == (one.card.node_id,)
        survivors.add(registry.card(one.card.node_id).boot_id)
    assert len(survivors) == 1
    registry = fresh()
    restarted = signed(replace(two.card, incarnation=2))
    registry.merge_cards([one], now=0.0, now_unix=NOW_UNIX)
    assert registry.merge_cards([restarted], now=0.0, now_unix=NOW_UNIX).clones == ()


def test_rumours_need_the_card_and_a_farewell_its_owners_signature(observer: Registry) -> None:
    card = simulated_card(1)
    node_id = card.node_id
    unknown = Rumour(node_id, 1, Liveness.DEAD)
    assert observer.merge_rumours([unknown], 0.0).skipped == ((0, RumourRule.UNKNOWN_NODE),)
    merge_card(observer, signed(card), now=0.0, now_unix=NOW_UNIX)
    told = observer.merge_rumours(
        [
            Rumour(node_id, 2**62, Liveness.DEAD),
            Rumour(node_id, 1, Liveness.LEFT, b"forged"),
            Rumour(node_id, 1, Liveness.SUSPECT),
        ],
        0.0,
    )
    assert told.skipped == ((0, RumourRule.AHEAD_OF_CARD), (1, RumourRule.BAD_SIGNATURE))
    assert told.merged == (node_id,)
    assert observer.liveness(node_id) is Liveness.SUSPECT
    farewell = sign(card.public_key, left_message(node_id, 1))
    left = Rumour(node_id, 1, Liveness.LEFT, farewell)
    assert observer.merge_rumours([left], 0.0).merged == (node_id,)
    assert not observer.declare(node_id, 1, Liveness.DEAD, 0.0)
    assert observer.record(node_id).rumour.signature == farewell


def test_a_refutation_is_alive_again_and_old_statements_say_nothing(observer: Registry) -> None:
    card = simulated_card(1)
    merge_card(observer, signed(card), now=0.0, now_unix=NOW_UNIX)
    assert observer.declare(card.node_id, 1, Liveness.DEAD, 0.0)
    changed = signed(replace(card, sequence=1))
    merge_card(observer, changed, now=0.0, now_unix=NOW_UNIX)
    assert observer.liveness(card.node_id) is Liveness.DEAD
    refuted = signed(replace(card, incarnation=2))
    merge_card(observer, refuted, now=0.0, now_unix=NOW_UNIX)
    assert observer.liveness(card.node_id) is Liveness.ALIVE
    assert not observer.declare(card.node_id, 1, Liveness.DEAD, 0.0)


def test_what_others_say_makes_suspect_at_most_and_never_brings_back_the_dead(
    observer: Registry,
) -> None:
    card = simulated_card(1)
    merge_card(observer, signed(card), now=0.0, now_unix=NOW_UNIX)
    dead = Rumour(card.node_id, 1, Liveness.DEAD)
    assert observer.merge_rumours([dead], 0.0).merged == (card.node_id,)
    assert observer.liveness(card.node_id) is Liveness.SUSPECT
    assert observer.merge_rumours([dead], 0.0).merged == ()
    assert observer.declare(card.node_id, 1, Liveness.DEAD, 0.0)
    for liveness in (Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD):
        assert observer.merge_rumours([Rumour(card.node_id, 1, liveness)], 0.0).merged == ()
    assert observer.liveness(card.node_id) is Liveness.DEAD


def introduce(registry: Registry, index: int, source: Source) -> MergeResult:
    card = signed(simulated_card(index))
    return registry.merge_cards([card], now=0.0, now_unix=NOW_UNIX, source=source)


def test_a_full_registry_takes_updates_and_no_more_from_who_brought_the_most() -> None:
    registry = Registry(signed(simulated_card(OWN)), verify, now=0.0, limit=3)
    source = Source("10.0.0.66")
    full = [introduce(registry, index, source).skipped for index in range(4)]
    assert full == [(), (), ((0, "REGISTRY_FULL"),), ((0, "REGISTRY_FULL"),)]
    assert registry.refused_count == 2
    assert len(registry) == 3
    newer = signed(replace(simulated_card(0), sequence=1))
    assert merge_card(registry, newer, now=0.0, now_unix=NOW_UNIX)


@pytest.mark.parametrize(
    "host", [pytest.param("10.0.0.5", id="another host"), pytest.param("10.0.0.66", id="the same")]
)
def test_ten_thousand_forged_cards_keep_no_newcomer_out_and_displace_nobody_who_answered(
    host: str,
) -> None:
    registry = Registry(signed(simulated_card(OWN)), verify, now=0.0, limit=1000)
    introduce(registry, 1, Source("10.0.0.1"))
    registry.reached(simulated_card(1).node_id, 0.0)
    for index in range(2000, 3100):
        introduce(registry, index, Source("10.0.0.66"))
    assert len(registry) == 1000
    newcomer = simulated_card(2)
    result = introduce(registry, 2, Source(host, newcomer.node_id))
    assert result.merged == (newcomer.node_id,)
    assert result.displaced == (simulated_card(2000).node_id,)
    assert simulated_card(1).node_id in registry
    assert len(registry) == 1000


def test_a_registry_full_of_those_who_answered_takes_nobody() -> None:
    registry = Registry(signed(simulated_card(OWN)), verify, now=0.0, limit=3)
    for index in (1, 2):
        introduce(registry, index, Source("10.0.0.1"))
        registry.reached(simulated_card(index).node_id, 0.0)
    newcomer = simulated_card(3)
    refused = introduce(registry, 3, Source("10.0.0.3", newcomer.node_id))
    assert refused.skipped == ((0, "REGISTRY_FULL"),)


def test_dead_strangers_make_way_first() -> None:
    registry = Registry(signed(simulated_card(OWN)), verify, now=0.0, limit=5)
    for index, host in ((1, "10.0.0.66"), (2, "10.0.0.66"), (3, "10.0.0.66"), (4, "10.0.0.9")):
        introduce(registry, index, Source(host))
    registry.declare(simulated_card(4).node_id, 1, Liveness.DEAD, 0.0)
    result = introduce(registry, 5, Source("10.0.0.66"))
    assert result.displaced == (simulated_card(4).node_id,)


def test_a_card_expires_by_its_own_time_after_the_last_sign_of_life(observer: Registry) -> None:
    card = replace(simulated_card(1), ttl_seconds=50.0)
    merge_card(observer, signed(card), now=0.0, now_unix=NOW_UNIX)
    times = MembershipSettings()
    observer.saw(card.node_id, 10.0)
    assert observer.forget_expired(59.0, times) == ()
    assert observer.forget_expired(60.0, times) == (card.node_id,)
    assert card.node_id not in observer


def test_a_card_lasts_two_passes_of_the_round_robin_at_least(observer: Registry) -> None:
    card = replace(simulated_card(1), ttl_seconds=0.5)
    merge_card(observer, signed(card), now=0.0, now_unix=NOW_UNIX)
    times = MembershipSettings(period_seconds=60.0)
    assert observer.forget_expired(239.0, times) == ()
    assert observer.forget_expired(240.0, times) == (card.node_id,)


def test_tombstones_leave_the_root_at_once_and_memory_after_their_time(
    observer: Registry,
) -> None:
    alone = observer.root_hash()
    card = simulated_card(1)
    merge_card(observer, signed(card), now=0.0, now_unix=NOW_UNIX)
    assert observer.root_hash() != alone
    observer.declare(card.node_id, 1, Liveness.DEAD, 10.0)
    assert observer.root_hash() == alone
    assert len(lines(observer)) == 2
    assert observer.live_count() == 1
    times = MembershipSettings(tombstone_seconds=200.0, stranger_tombstone_seconds=100.0)
    assert observer.forget_expired(109.0, times) == ()
    assert observer.forget_expired(110.0, times) == (card.node_id,)
    with pytest.raises(NodeNotFound):
        observer.card(card.node_id)


def test_what_of_a_card_may_be_called_follows_the_networks() -> None:
    """Wi-Fi, then a VPN, then none of the node's networks: what was last called is kept."""
    near = {"192.168.1.9:1"}

    def usable(card: Card, host: str) -> Card | None:
        kept = tuple(each for each in card.addresses if each in near or each.startswith(host))
        return replace(card, addresses=kept) if kept else None

    registry = Registry(signed(simulated_card(OWN)), verify, now=0.0, usable=usable)
    both = ("192.168.1.9:1", "10.8.0.9:1")
    told = signed(replace(simulated_card(1), addresses=both))
    source = Source("192.168.1.77")
    registry.merge_cards((told,), now=1.0, now_unix=NOW_UNIX, source=source)
    node_id, root = told.card.node_id, registry.root_hash()
    assert registry.card(node_id).addresses == both[:1]
    for networks, expected in (({both[1]}, both[1:]), (set(), both[1:]), (set(both), both)):
        near.clear()
        near.update(networks)
        changed = registry.look_again(usable)
        assert registry.card(node_id).addresses == expected
        assert changed == ((node_id,) if networks else ())
    assert registry.root_hash() == root


def test_ages_are_local_and_no_part_of_the_registers() -> None:
    early, late = fresh(), fresh()
    card = signed(simulated_card(1))
    merge_card(early, card, now=1.0, now_unix=NOW_UNIX)
    merge_card(late, card, now=500.0, now_unix=NOW_UNIX)
    late.saw(card.card.node_id, 600.0)
    assert late.record(card.card.node_id).seen_at == 600.0
    assert same(early, late)

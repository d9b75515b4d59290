from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.membership.clone_watch import CloneWatch, Verdict
from scripts.simulator.cards import signed, simulated_card


def card(boot_id: str, incarnation: int, sequence: int = 0) -> SignedCard:
    return signed(
        replace(simulated_card(1), boot_id=boot_id, incarnation=incarnation, sequence=sequence)
    )


def test_the_past_is_past() -> None:
    watch = CloneWatch()
    own = card("now", 5)
    assert watch.judge(own, card("before", 4, 9)) is Verdict.PAST
    assert watch.judge(own, own) is Verdict.PAST


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=3))
@settings(deadline=None)
def test_a_forgotten_past_is_risen_above_and_never_yielded_to(
    past: list[tuple[int, int]],
) -> None:
    watch = CloneWatch()
    own = card("restored", 1)
    for incarnation, sequence in past:
        heard = card("lost", incarnation, sequence)
        verdict = watch.judge(own, heard)
        assert verdict is not Verdict.YIELD
        if verdict is Verdict.RISE:
            own = card("restored", incarnation + 1)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32))
@settings(deadline=None)
def test_of_two_living_clones_exactly_one_survives(one: int, other: int, seed: int) -> None:
    rng = Random(seed)
    own = {"a": card("a", one), "b": card("b", other)}
    watch = {"a": CloneWatch(), "b": CloneWatch()}
    sent: dict[str, list[SignedCard]] = {"a": [own["a"]], "b": [own["b"]]}
    yielded: set[str] = set()
    for _ in range(400):
        name = rng.choice("ab")
        if name in yielded:
            continue
        heard = rng.choice(sent["b" if name == "a" else "a"][-2:])
        verdict = watch[name].judge(own[name], heard)
        if verdict is Verdict.YIELD:
            yielded.add(name)
        elif verdict is Verdict.RISE:
            own[name] = card(name, heard.card.incarnation + 1)
            sent[name].append(own[name])
    assert len(yielded) == 1

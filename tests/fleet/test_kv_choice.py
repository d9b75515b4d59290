"""How keys and values are kept when the request leaves it open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import ArchiveOffer, Card, ModelOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.kv_choice import choose_kv_strategy
from kakeya_fleet.fleet.placement.placement import plan
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.fleet.placement.predicted_pair import Server
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView

MakeCard = Callable[..., Card]
MIB = 1 << 20
# 1,024 bytes a token: 100,000 positions take 97.7 MiB.
OPEN = PlanRequest("tiny", context_tokens=2000)
NEAR = Measurements(round_trips={("v", "a"): 0.0005, ("v", "b"): 0.0005})


@pytest.fixture
def offer(verifier_offer: ModelOffer) -> ModelOffer:
    return replace(
        verifier_offer,
        context_length=100_000,
        history_layer_count=10,
        evicted_arithmetic="torch",
    )


@pytest.fixture
def verifier(make_card: MakeCard, offer: ModelOffer) -> NodeView:
    return NodeView(make_card("v", offer), Liveness.ALIVE)


@pytest.fixture
def archive(make_card: MakeCard) -> Callable[..., NodeView]:
    def make(name: str = "a", free: int = 128 * MIB, liveness: Liveness = Liveness.ALIVE):  # type: ignore[no-untyped-def]
        card = replace(make_card(name), archive=ArchiveOffer(1 << 40, free, 7001, "torch"))
        return NodeView(card, liveness)

    return make


def test_a_live_archive_with_room_restores_and_the_plan_says_so(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    made = plan(OPEN, [verifier, archive()], NEAR)
    asked = plan(replace(OPEN, kv_strategy=KvStrategy.RESTORED), [verifier, archive()], NEAR)
    assert made.kv_strategy is KvStrategy.RESTORED
    assert made.archives == asked.archives != ()
    assert made.predicted_tokens_per_second == asked.predicted_tokens_per_second
    (chosen,) = set(made.reasons) - set(asked.reasons)
    assert "the request does not say how keys and values are kept" in chosen


@pytest.mark.parametrize("strategy", list(KvStrategy))
def test_what_is_asked_for_is_kept_without_a_reason(
    verifier: NodeView, archive: Callable[..., NodeView], strategy: KvStrategy
) -> None:
    made = plan(replace(OPEN, kv_strategy=strategy), [verifier, archive()], NEAR)
    assert made.kv_strategy is strategy
    assert not any("does not say" in line or "alone are kept" in line for line in made.reasons)


@pytest.mark.parametrize(
    ("changes", "archives", "words"),
    [
        ({}, [], "no live node has an archive"),
        ({}, [{"liveness": Liveness.SUSPECT}], "no live node has an archive"),
        # 2,000 tokens would fit: a session may become longer than its plan.
        ({}, [{"free": 20 * MIB}], "The archive of name-a has 20.0 MiB free"),
        ({"rank_count": 2}, [{}], "a group of ranks serves tiny"),
        ({"history_layer_count": 0}, [{}], "name-v tells of no layer of tiny"),
        ({"context_length": 1028}, [{}], "the 1,028 positions of tiny fit into them"),
        ({"evicted_arithmetic": "another"}, [{}], "name-v could not take over from it"),
    ],
)
def test_without_one_that_can_be_used_sink_and_window_are_kept_and_the_plan_says_why(
    make_card: MakeCard,
    offer: ModelOffer,
    archive: Callable[..., NodeView],
    changes: dict[str, int | str],
    archives: list[dict[str, object]],
    words: str,
) -> None:
    verifier = NodeView(make_card("v", replace(offer, **changes)), Liveness.ALIVE)  # type: ignore[arg-type]
    request = replace(OPEN, context_tokens=1000)
    nodes = [verifier, *(archive(**each) for each in archives)]
    made = plan(request, nodes, NEAR)
    assert made.kv_strategy is KvStrategy.SINK_WINDOW
    assert made.archive is None
    (why,) = [line for line in made.reasons if "Sink and window alone are kept" in line]
    assert words in why


def test_several_archives_have_room_together(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    nodes = [verifier, archive("a", 60 * MIB), archive("b", 60 * MIB)]
    made = plan(OPEN, nodes, NEAR)
    assert made.kv_strategy is KvStrategy.RESTORED


def test_the_choice_is_the_same_for_every_planned_context(
    verifier: NodeView, archive: Callable[..., NodeView], offer: ModelOffer
) -> None:
    """What a plan says of 100 tokens, a session of unknown length does."""
    for free in (20 * MIB, 128 * MIB):
        nodes = [verifier, archive(free=free)]
        choices = {
            choose_kv_strategy(
                replace(OPEN, context_tokens=context), Server(verifier.card, offer), nodes, NEAR
            )
            for context in (0, 100, 5000, 100_000)
        }
        assert len(choices) == 1

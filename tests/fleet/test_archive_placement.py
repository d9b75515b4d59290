from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import ArchiveOffer, Card, ModelOffer
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.archive_choice import LEAST_POSITIONS
from kakeya_fleet.fleet.placement.packing import Packing
from kakeya_fleet.fleet.placement.placement import plan
from kakeya_fleet.fleet.placement.plan import KvStrategy, Plan, PlanRequest
from kakeya_fleet.fleet.views.node_view import UNLIMITED_BYTES, Measurements, NodeView
from tests.support.breadth import again

MakeCard = Callable[..., Card]
MIB = 1 << 20
LAYERS = 10
# 1,024 bytes a token, a flat step of 10 ms: 100 tokens a second alone.
RESTORED = PlanRequest(
    "tiny", context_tokens=40_000, window_tokens=1000, kv_strategy=KvStrategy.RESTORED
)


@pytest.fixture
def verifier(make_card: MakeCard, verifier_offer: ModelOffer) -> NodeView:
    offer = replace(verifier_offer, context_length=100_000, history_layer_count=LAYERS)
    return NodeView(make_card("v", offer, free=16 * MIB), Liveness.ALIVE)


@pytest.fixture
def archive(make_card: MakeCard) -> Callable[..., NodeView]:
    def make(name: str, free: int = 64 * MIB, capacity: int = 1 << 40) -> NodeView:
        offer = ArchiveOffer(capacity, free, 7001, "torch")
        return NodeView(replace(make_card(name), archive=offer), Liveness.ALIVE)

    return make


def trips(**seconds: float) -> Measurements:
    return Measurements(round_trips={("v", name): each for name, each in seconds.items()})


def kept(made: Plan) -> list[tuple[str, int, int]]:
    return [
        (each.archive.node_id, each.first_position, each.end_position) for each in made.archives
    ]


def reason(made: Plan, words: str) -> str:
    found = [line for line in made.reasons if words in line]
    assert len(found) == 1, made.reasons
    return found[0]


def test_a_step_waits_in_each_layer_and_the_plan_says_so(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    made = plan(RESTORED, [verifier, archive("a"), archive("b")], trips(a=0.001, b=0.0005))
    assert kept(made) == [("b", 4, 39_000)]
    assert made.archive == made.archives[0].archive
    # 10 ms + 10 x 0.5 ms.
    assert made.predicted_tokens_per_second == pytest.approx(1 / 0.015)
    assert made.predicted_alone_tokens_per_second == pytest.approx(1 / 0.015)
    assert made.reasons[-4:] == (
        "What is evicted goes to name-b, round trip 0.50 ms. It takes 39.0 MiB of the 64.0 MiB "
        "free there.",
        "Each of 10 layers waits 500 us for it: a step of one token takes 15.00 ms instead of "
        "10.00 ms.",
        "Not name-a: 10.00 ms a step would be waited for it, round trip 1.00 ms.",
        "The archive is needed: full attention to 40,000 tokens takes 40.0 MiB, name-v has "
        "16.0 MiB free for keys and values.",
    )


def test_packed_positions_take_fewer_bytes_and_the_plan_says_by_what(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    packing = Packing("kvarn4", "high", 4.75, 0.0015, "some model")
    packed = replace(RESTORED, packing=packing)
    # 39,000 positions of 1,024 bytes do not fit, of 304 they do.
    nodes = [verifier, archive("a", free=16 * MIB)]
    assert kept(plan(RESTORED, nodes, trips(a=0.001))) == []
    made = plan(packed, nodes, trips(a=0.001))
    assert kept(made) == [("a", 64, 39_000)], "the sink is a whole tile"
    assert reason(made, "packed by kvarn4") == (
        "What is evicted is packed by kvarn4 (--kv-quality high): 4.75 bits a number at most "
        "instead of 16, 3.4 times the context a byte. On some model that moved the choices' "
        "distributions by 0.0015 nats; of this model it was not measured here yet."
    )
    assert "It takes 11.6 MiB of the 16.0 MiB free there." in reason(made, "goes to name-a")


def test_blocks_of_drafts_wait_once_so_that_they_are_worth_more(
    verifier: NodeView, archive: Callable[..., NodeView], make_card: MakeCard,
    ngram_offer: ModelOffer,
) -> None:  # fmt: skip
    nodes = [verifier, archive("a"), NodeView(make_card("n", ngram_offer), Liveness.ALIVE)]
    way = trips(a=0.002, n=0.0005)
    restored = plan(RESTORED, nodes, way)
    window = plan(replace(RESTORED, kv_strategy=KvStrategy.SINK_WINDOW), nodes, way)
    assert restored.proposer is not None
    assert restored.predicted_tokens_per_second < window.predicted_tokens_per_second
    gain = restored.predicted_tokens_per_second / restored.predicted_alone_tokens_per_second
    assert gain > window.predicted_tokens_per_second / window.predicted_alone_tokens_per_second
    assert restored.block_size >= window.block_size
    assert restored.predicted_alone_tokens_per_second == pytest.approx(1 / 0.030)


def test_it_says_when_an_archive_does_not_pay(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    nodes = [verifier, archive("a")]
    short = replace(RESTORED, context_tokens=8192)
    made = plan(short, nodes, trips(a=0.003))
    assert made.reasons[-1] == (
        "The archive does not pay: full attention to 8,192 tokens takes 8.0 MiB and fits the "
        "16.0 MiB free on name-v: it is predicted 4.00 times as fast; use --kv full."
    )
    cheap = plan(short, nodes, trips(a=0.00005))
    assert cheap.reasons[-1] == (
        "The archive costs little: full attention to 8,192 tokens takes 8.0 MiB and fits the "
        "16.0 MiB free on name-v, but is predicted only 1.05 times as fast."
    )
    dark = plan(short, nodes, trips())
    assert dark.reasons[-1] == (
        "Full attention to 8,192 tokens takes 8.0 MiB and fits the 16.0 MiB free on name-v: "
        "without an archive no step waits for one; --kv full."
    )
    free = replace(trips(a=0.003), free_bytes={"v": UNLIMITED_BYTES})
    assert plan(short, nodes, free).reasons[-1] == (
        "Full attention to 8,192 tokens takes 8.0 MiB on name-v."
    )
    # What the node says now counts, not its card; and whole segments count.
    busy = replace(trips(a=0.003), free_bytes={"v": 8 * MIB - 1})
    assert "The archive is needed" in plan(short, nodes, busy).reasons[-1]


def test_several_share_what_none_has_the_room_for(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    nodes = [verifier, archive("a", 20 * MIB), archive("b", 30 * MIB), archive("c", 30 * MIB)]
    made = plan(RESTORED, nodes, trips(a=0.0001, b=0.0002, c=0.0003))
    assert kept(made) == [("a", 4, 16_384), ("b", 16_384, 39_000)]
    assert made.predicted_tokens_per_second == pytest.approx(1 / 0.013)
    assert reason(made, "No archive alone") == (
        "No archive alone has 39.0 MiB free for what is evicted: name-a keeps positions 4 to "
        "16,383 (16.0 MiB of 20.0 MiB free), name-b keeps positions 16,384 to 38,999 (23.0 MiB "
        "of 30.0 MiB free)."
    )
    assert "waits 300 us for the 2 archives in turn" in reason(made, "Each of")
    assert reason(made, "Not name-c") == "Not name-c: 30.0 MiB free of 39.0 MiB needed."
    near = plan(RESTORED, [*nodes, archive("d")], trips(a=0.0001, b=0.0002, d=0.009))
    assert "Together they are nearer than name-d with room for all" in " ".join(near.reasons)
    assert kept(near) == kept(made)


def test_without_room_it_names_what_is_lacking(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    made = plan(RESTORED, [verifier, archive("a", 9 * MIB), archive("b", 8 * MIB)], trips(a=0.1))
    assert (made.archive and made.archive.node_id, made.archives) == ("a", ())
    assert made.predicted_tokens_per_second == pytest.approx(100.0)
    assert reason(made, "All archives together").startswith(
        "All archives together have 17.0 MiB free, 39.0 MiB are needed for 39,000 evicted "
        "positions: a session can begin on name-a, but not grow that long"
    )
    assert reason(made, "Not name-b") == "Not name-b: 8.0 MiB free of 39.0 MiB needed."
    alone = plan(RESTORED, [verifier, archive("a", MIB)], trips())
    assert reason(alone, "The archive of name-a has 1.0 MiB free")


def test_what_is_not_measured_is_said_and_not_counted(
    verifier: NodeView, archive: Callable[..., NodeView], verifier_offer: ModelOffer,
    make_card: MakeCard,
) -> None:  # fmt: skip
    dark = plan(RESTORED, [verifier, archive("a")], trips())
    assert dark.predicted_tokens_per_second == pytest.approx(100.0)
    assert reason(dark, "not counted") == (
        "The way from name-v to name-a is not measured: what a step waits for the archive is "
        "not counted."
    )
    both = plan(RESTORED, [verifier, archive("a"), archive("b")], trips(a=0.02))
    assert reason(both, "Not name-b") == "Not name-b: the way there is not measured."
    old = NodeView(
        make_card("v", replace(verifier_offer, context_length=0)), Liveness.ALIVE
    )  # tells no layers
    untold = plan(RESTORED, [old, archive("a"), archive("b")], trips(a=0.02, b=0.03))
    assert untold.predicted_tokens_per_second == pytest.approx(100.0)
    assert "does not tell how many layers of tiny ask" in reason(untold, "not counted")
    assert "30.00 ms a layer" in reason(untold, "Not name-b")
    assert "times as fast" not in untold.reasons[-1]


def test_an_archives_own_answers_count_before_the_round_trip_of_the_nodes(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    nodes = [verifier, archive("a"), archive("b")]
    measured = replace(trips(a=0.002, b=0.001), archive_waits={("v", "a"): 0.0001})
    made = plan(RESTORED, nodes, measured)
    assert kept(made)[0][0] == "a"
    assert made.predicted_tokens_per_second == pytest.approx(1 / 0.011)
    full = replace(measured, archive_free_bytes={"a": 5 * MIB})
    assert kept(plan(RESTORED, nodes, full))[0][0] == "b"


def test_a_context_that_stays_resident_waits_for_nothing(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    resident = replace(RESTORED, context_tokens=1004)
    made = plan(resident, [verifier, archive("a")], trips(a=0.5))
    assert made.predicted_tokens_per_second == pytest.approx(100.0)
    assert kept(made) == [("a", 4, 4 + LEAST_POSITIONS)]
    assert "stays in sink and window" in reason(made, "no step waits")
    one_more = plan(replace(resident, context_tokens=1005), [verifier, archive("a")], trips(a=0.5))
    assert one_more.predicted_tokens_per_second < 1.0


def test_the_own_memory_is_what_the_session_was_to_save(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    offer = ArchiveOffer(64 * MIB, 64 * MIB, 7001, "torch")
    own = replace(verifier, card=replace(verifier.card, archive=offer))
    made = plan(RESTORED, [own, archive("a")], trips(a=0.5))
    assert kept(made)[0][0] == "a"
    assert reason(made, "Not name-v") == (
        "Not name-v itself: its memory is what the session is to save."
    )
    alone = plan(RESTORED, [own], trips())
    assert kept(alone)[0][0] == "v"
    assert reason(alone, "stays in the memory of name-v itself")
    assert alone.predicted_tokens_per_second == pytest.approx(100.0)


def test_other_requests_are_planned_as_ever(
    verifier: NodeView, archive: Callable[..., NodeView]
) -> None:
    nodes = [verifier, archive("a")]
    for request in (
        replace(RESTORED, without_archive=True),
        replace(RESTORED, kv_strategy=KvStrategy.SINK_WINDOW),
    ):
        made = plan(request, nodes, trips(a=0.5))
        assert (made.archive, made.archives) == (None, ())
        assert made.predicted_tokens_per_second == pytest.approx(100.0)
        assert "archive" not in " ".join(made.reasons)


archives = st.lists(
    st.tuples(
        st.sampled_from([MIB, 9 * MIB, 20 * MIB, 64 * MIB]),
        st.none() | st.sampled_from([0.0001, 0.0004, 0.003]),
        st.sampled_from([Liveness.ALIVE, Liveness.ALIVE, Liveness.SUSPECT]),
    ),
    max_size=5,
)


@again(2)
@given(archives, st.sampled_from([0, 500, 9000, 40_000]), st.integers(0, 2**32))
@settings(
    deadline=None, max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_plan_accounts_for_every_archive_in_any_order_and_for_every_wait(
    verifier: NodeView,
    archive: Callable[..., NodeView],
    drawn: list[tuple[int, float | None, Liveness]],
    context: int,
    seed: int,
) -> None:
    nodes = [verifier]
    way: dict[str, float] = {}
    for index, (free, trip, liveness) in enumerate(drawn):
        nodes.append(replace(archive(f"a{index}", free), liveness=liveness))
        if trip is not None:
            way[f"a{index}"] = trip
    request = replace(RESTORED, context_tokens=context)
    made = plan(request, nodes, trips(**way))
    Random(seed).shuffle(nodes)
    assert plan(request, nodes, trips(**way)) == made
    text = " ".join(made.reasons)
    for index in range(len(drawn)):
        assert f"name-a{index}" in text
    live = [index for index, (_, _, liveness) in enumerate(drawn) if liveness is Liveness.ALIVE]
    assert (made.archive is not None) is bool(live)
    assert ("fleet join --serve archive=1GiB" in text) is (not made.archives)
    waited = sum(way.get(each.archive.node_id, 0.0) for each in made.archives)
    known = all(each.archive.node_id in way for each in made.archives)
    evicts = (context or 100_000) > 1004
    step = 0.010 + (LAYERS * waited if known and evicts else 0.0)
    assert made.predicted_tokens_per_second == pytest.approx(1 / step)
    if not made.archives or not known:
        assert ("times as fast" in text) is (bool(made.archives) and not evicts and context > 0)
        return
    slower = archive("slower", 1 << 40)
    more = plan(request, [*nodes, slower], trips(**way, slower=waited + 0.1))
    assert (more.archives, more.predicted_tokens_per_second) == (
        made.archives,
        made.predicted_tokens_per_second,
    )

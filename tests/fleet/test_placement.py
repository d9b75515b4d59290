from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import (
    ArchiveOffer,
    Card,
    ModelKind,
    ModelOffer,
    Role,
    StepCost,
)
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import ModelNotFound, NoPlacement
from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance, Measurements, NodeView, plan
from kakeya_fleet.fleet.placement.plan import (
    KvStrategy,
    Plan,
    PlanRequest,
    Rejection,
    RejectionReason,
    Transport,
)
from kakeya_fleet.fleet.views.node_view import ANY_MODEL, UNLIMITED_BYTES, view_of

MakeCard = Callable[..., Card]
TINY = PlanRequest("tiny", kv_strategy=KvStrategy.SINK_WINDOW)


def alive(card: Card) -> NodeView:
    return NodeView(card, Liveness.ALIVE)


@pytest.fixture
def pair(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> list[NodeView]:
    """Verifier on a, proposer on b."""
    return [alive(make_card("a", verifier_offer)), alive(make_card("b", ngram_offer))]


def way(seconds: float = 0.0005, acceptance: float | None = None) -> Measurements:
    rates = (
        {}
        if acceptance is None
        else {("tiny", "ngram"): MeasuredAcceptance(acceptance, 500, acceptance, acceptance, 9.0)}
    )
    return Measurements(round_trips={("a", "b"): seconds}, acceptances=rates)


def only_rejection(made: Plan) -> Rejection:
    assert len(made.rejections) == 1
    return made.rejections[0]


def test_a_near_proposer_is_paired_with_the_verifier(pair: list[NodeView]) -> None:
    made = plan(TINY, pair, way())
    assert (made.verifier.node_id, made.verifier.address) == ("a", "a.local:7000")
    assert made.proposer is not None
    assert (made.proposer.node_id, made.proposer.model_id) == ("b", "ngram")
    assert made.transport is Transport.GRPC
    assert made.predicted_alone_tokens_per_second == pytest.approx(100.0)
    assert made.predicted_tokens_per_second > 100.0
    assert (made.acceptance_rate, made.acceptance_measured) == (0.4, False)
    assert made.round_trip_seconds == 0.0005
    assert made.kv_bytes == 1024 * 5 * 256
    assert "assumed" in made.reasons[0]
    assert "0.40" in made.reasons[0]
    rejected = only_rejection(made)
    assert (rejected.proposer, rejected.reason) == (None, RejectionReason.SLOWER_THAN_CHOSEN)
    assert rejected.predicted_tokens_per_second == pytest.approx(100.0)


def withheld(view: NodeView, *allowed: Role) -> NodeView:
    """The node as keepers let it serve."""
    return view_of(view.card, view.liveness, frozenset(allowed))


def test_a_proposer_that_keepers_withhold_is_named_and_not_paired(pair: list[NodeView]) -> None:
    nodes = [pair[0], withheld(pair[1], Role.VERIFIER, Role.ARCHIVE)]
    made = plan(TINY, nodes, way())
    assert made.proposer is None
    assert not made.trials
    rejected = only_rejection(made)
    assert rejected.proposer is not None
    assert rejected.reason is RejectionReason.ROLE_NOT_ALLOWED
    assert "do not let name-b serve as proposer" in rejected.explanation
    # Also for whoever asks for it by name.
    with pytest.raises(NoPlacement, match="do not let name-b serve as proposer"):
        plan(replace(TINY, proposer_node_id="b"), nodes, way())
    assert plan(TINY, [pair[0], withheld(pair[1], Role.PROPOSER)], way()).proposer is not None


def test_a_verifier_that_keepers_withhold_is_not_chosen(
    make_card: MakeCard, verifier_offer: ModelOffer
) -> None:
    nodes = [alive(make_card(name, verifier_offer)) for name in ("a", "b")]
    made = plan(TINY, [withheld(nodes[0]), nodes[1]], Measurements())
    assert made.verifier.node_id == "b"
    assert only_rejection(made).reason is RejectionReason.ROLE_NOT_ALLOWED
    with pytest.raises(NoPlacement, match="serve as verifier"):
        plan(TINY, [withheld(each, Role.PROPOSER) for each in nodes], Measurements())


def test_archives_that_keepers_withhold_are_named(pair: list[NodeView]) -> None:
    card = replace(pair[1].card, archive=ArchiveOffer(1 << 30, 1 << 30, 7001, ""))
    request = replace(TINY, kv_strategy=KvStrategy.RESTORED, context_tokens=2048)
    made = plan(request, [pair[0], withheld(alive(card), Role.PROPOSER)], way())
    assert made.archive is None
    assert any("do not let name-b keep an archive" in reason for reason in made.reasons)
    assert plan(request, [pair[0], withheld(alive(card), Role.ARCHIVE)], way()).archive is not None


def test_a_far_proposer_is_left_out_and_the_numbers_say_why(pair: list[NodeView]) -> None:
    made = plan(TINY, pair, way(0.2))
    assert (made.proposer, made.transport, made.block_size) == (None, None, 0)
    assert made.predicted_tokens_per_second == made.predicted_alone_tokens_per_second
    rejected = only_rejection(made)
    assert rejected.reason is RejectionReason.SLOWER_THAN_ALONE
    assert 0 < rejected.predicted_tokens_per_second < 100.0
    assert "200.00 ms" in rejected.explanation


def test_measured_acceptance_decides_once_enough_was_drafted(pair: list[NodeView]) -> None:
    assert plan(TINY, pair, way(acceptance=0.0)).proposer is None
    good = plan(TINY, pair, way(acceptance=0.9))
    assert (good.acceptance_rate, good.acceptance_measured) == (0.9, True)
    assumed = plan(TINY, pair, way())
    assert good.predicted_tokens_per_second > assumed.predicted_tokens_per_second
    assert "0.90 measured" in good.reasons[0]
    unlucky = Measurements(
        round_trips={("a", "b"): 0.0005},
        acceptances={("tiny", "ngram"): MeasuredAcceptance(0.0, 5, 0.0, 0.0, 9.0)},
    )
    assert plan(TINY, pair, unlucky).acceptance_rate == 0.4


def test_a_named_proposer_is_used_although_it_is_slower(pair: list[NodeView]) -> None:
    for request in (
        replace(TINY, proposer_model="ngram"),
        replace(TINY, proposer_node_id="b"),
    ):
        made = plan(request, pair, way(0.2))
        assert made.proposer is not None
        assert made.predicted_tokens_per_second < made.predicted_alone_tokens_per_second
        assert any("although" in reason for reason in made.reasons)
        assert only_rejection(made).reason is RejectionReason.NOT_REQUESTED


def inexact(pair: list[NodeView]) -> list[NodeView]:
    """The pair with a verifier whose self-check failed."""
    verifier, proposer = pair
    models = tuple(replace(offer, exact=False) for offer in verifier.card.models)
    return [alive(replace(verifier.card, models=models)), proposer]


def test_a_verifier_that_is_not_exact_decodes_alone_and_the_mend_is_named(
    pair: list[NodeView],
) -> None:
    made = plan(TINY, inexact(pair), way())
    assert (made.proposer, made.exact) == (None, True)
    rejected = only_rejection(made)
    assert rejected.reason is RejectionReason.NOT_EXACT
    assert rejected.proposer is not None
    for words in ("tiny is not exact on name-a", "could change tokens", "name the proposer"):
        assert words in rejected.explanation


def test_naming_the_proposer_accepts_a_verifier_that_is_not_exact(pair: list[NodeView]) -> None:
    for request in (replace(TINY, proposer_model="ngram"), replace(TINY, proposer_node_id="b")):
        made = plan(request, inexact(pair), way())
        assert made.proposer is not None
        assert not made.exact
        assert [line for line in made.reasons if "tiny on name-a is not exact" in line]
        exact = plan(request, pair, way())
        assert exact.exact
        assert not any("not exact" in line for line in exact.reasons)


def test_a_proposer_named_and_unwanted_accepts_nothing(pair: list[NodeView]) -> None:
    request = replace(TINY, proposer_model="ngram", without_proposer=True)
    made = plan(request, inexact(pair), way())
    assert (made.proposer, made.exact) == (None, True)
    assert only_rejection(made).reason is RejectionReason.NOT_REQUESTED


def test_an_exact_verifier_is_paired_where_an_inexact_one_would_be_faster(
    pair: list[NodeView], make_card: MakeCard, verifier_offer: ModelOffer
) -> None:
    quick = replace(verifier_offer, exact=False, step_costs=(StepCost(1, 0.0099),))
    nodes = [*pair, alive(make_card("c", quick))]
    made = plan(TINY, nodes, Measurements(round_trips={("a", "b"): 0.0, ("c", "b"): 0.0}))
    assert (made.verifier.node_id, made.exact) == ("a", True)
    assert made.proposer is not None


def test_without_a_proposer_none_is_used(pair: list[NodeView]) -> None:
    made = plan(replace(TINY, without_proposer=True, proposer_model="ngram"), pair, way())
    assert made.proposer is None
    assert only_rejection(made).reason is RejectionReason.NOT_REQUESTED


def test_a_proposer_on_the_same_node_needs_no_way(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    made = plan(TINY, [alive(make_card("a", verifier_offer, ngram_offer))], Measurements())
    assert made.transport is Transport.LOCAL
    assert made.round_trip_seconds == 0.0


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (RejectionReason.TOKENIZER_MISMATCH, "uuuuuuuuuuuu"),
        (RejectionReason.WRONG_TARGET, "vvvvvvvvvvvv, tiny has wwwwwwwwwwww"),
        (RejectionReason.PROTOCOL_SKEW, "7 to 9"),
        (RejectionReason.NOT_ALIVE, "suspect"),
        (RejectionReason.CONTEXT_TOO_LONG, "512"),
        (RejectionReason.NOT_MEASURED, "drafter"),
        (RejectionReason.UNREACHABLE, "no measured way"),
        (RejectionReason.BREAKER_OPEN, "circuit breaker"),
        (RejectionReason.NOT_REQUESTED, "ngram"),
    ],
)
def test_each_reason_against_a_proposer(
    reason: RejectionReason,
    said: str,
    make_card: MakeCard,
    verifier_offer: ModelOffer,
    ngram_offer: ModelOffer,
) -> None:
    offer = replace(
        ngram_offer,
        model_id="drafter",
        kind=ModelKind.MASKED_DIFFUSION,
        tokenizer_digest=verifier_offer.tokenizer_digest,
    )
    request = replace(TINY, context_tokens=1000)
    changes: dict[str, int] = {}
    liveness = Liveness.ALIVE
    measured = way()
    match reason:
        case RejectionReason.TOKENIZER_MISMATCH:
            offer = replace(offer, tokenizer_digest="u" * 64)
        case RejectionReason.WRONG_TARGET:
            offer = replace(offer, target_weights_digest="v" * 64)
        case RejectionReason.PROTOCOL_SKEW:
            changes = {"protocol_min": 7, "protocol_max": 9}
        case RejectionReason.NOT_ALIVE:
            liveness = Liveness.SUSPECT
        case RejectionReason.CONTEXT_TOO_LONG:
            offer = replace(offer, context_length=512)
        case RejectionReason.NOT_MEASURED:
            offer = replace(offer, step_costs=())
        case RejectionReason.UNREACHABLE:
            measured = Measurements()
        case RejectionReason.BREAKER_OPEN:
            measured = replace(measured, open_breakers=frozenset({("a", "b", ANY_MODEL)}))
        case _:
            request = replace(request, proposer_model="ngram")
    bystander = alive(make_card("c", ngram_offer))
    nodes = [
        alive(make_card("a", verifier_offer)),
        NodeView(make_card("b", offer, **changes), liveness),
        bystander,
    ]
    round_trips = {**measured.round_trips, ("a", "c"): 0.0005}
    made = plan(request, nodes, replace(measured, round_trips=round_trips))
    rejected = [line for line in made.rejections if line.proposer and line.proposer.node_id == "b"]
    assert [line.reason for line in rejected] == [reason]
    assert said in rejected[0].explanation
    assert made.proposer is not None
    assert made.proposer.node_id == "c"


def test_a_breaker_holds_one_model_of_a_node_apart_and_no_other(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    drafter = replace(
        ngram_offer,
        model_id="drafter",
        kind=ModelKind.MASKED_DIFFUSION,
        tokenizer_digest=verifier_offer.tokenizer_digest,
    )
    nodes = [alive(make_card("a", verifier_offer)), alive(make_card("b", drafter, ngram_offer))]
    measured = replace(way(), open_breakers=frozenset({("a", "b", "drafter")}))
    made = plan(TINY, nodes, measured)
    assert made.proposer is not None
    assert (made.proposer.node_id, made.proposer.model_id) == ("b", "ngram")
    apart = [line for line in made.rejections if line.reason is RejectionReason.BREAKER_OPEN]
    assert [line.proposer and line.proposer.model_id for line in apart] == ["drafter"]


@pytest.mark.parametrize("liveness", [Liveness.SUSPECT, Liveness.DEAD])
def test_a_suspect_drafts_for_who_names_it_and_for_nobody_else(
    liveness: Liveness, make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    nodes = [
        alive(make_card("a", verifier_offer)),
        NodeView(make_card("b", ngram_offer), liveness),
    ]
    assert plan(TINY, nodes, way()).proposer is None
    named = replace(TINY, proposer_node_id="b")
    if liveness is Liveness.DEAD:
        with pytest.raises(NoPlacement, match="dead"):
            plan(named, nodes, way())
    else:
        made = plan(named, nodes, way()).proposer
        assert made is not None
        assert made.node_id == "b"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (RejectionReason.NOT_ENOUGH_MEMORY, "1.2 MiB"),
        (RejectionReason.PROTOCOL_SKEW, "7 to 9"),
        (RejectionReason.NOT_ALIVE, "suspect"),
        (RejectionReason.CONTEXT_TOO_LONG, "4096"),
        (RejectionReason.NOT_MEASURED, "tiny"),
        (RejectionReason.NOT_REQUESTED, "verifier node z"),
    ],
)
def test_each_reason_against_a_verifier_and_the_error_that_lists_it(
    reason: RejectionReason,
    said: str,
    make_card: MakeCard,
    verifier_offer: ModelOffer,
    ngram_offer: ModelOffer,
) -> None:
    request, offer, liveness = TINY, verifier_offer, Liveness.ALIVE
    changes: dict[str, int] = {}
    match reason:
        case RejectionReason.NOT_ENOUGH_MEMORY:
            changes = {"free": 1000}
        case RejectionReason.PROTOCOL_SKEW:
            changes = {"protocol_min": 7, "protocol_max": 9}
        case RejectionReason.NOT_ALIVE:
            liveness = Liveness.SUSPECT
        case RejectionReason.CONTEXT_TOO_LONG:
            request = replace(request, context_tokens=4096)
        case RejectionReason.NOT_MEASURED:
            offer = replace(offer, step_costs=())
        case _:
            request = replace(request, verifier_node_id="z")
    bad = NodeView(make_card("a", offer, ngram_offer, **changes), liveness)
    with pytest.raises(NoPlacement) as caught:
        plan(request, [bad], Measurements())
    if reason is not RejectionReason.NOT_REQUESTED:
        assert said in str(caught.value)
    assert caught.value.metadata["reasons"] == reason.value
    if reason is RejectionReason.CONTEXT_TOO_LONG:
        return
    good = alive(make_card("z", replace(verifier_offer, step_costs=(StepCost(1, 9.0),))))
    made = plan(request, [bad, good], Measurements())
    assert made.verifier.node_id == "z"
    rejected = [line for line in made.rejections if line.verifier.node_id == "a"]
    assert [(line.reason, line.proposer) for line in rejected] == [(reason, None)]
    assert said in rejected[0].explanation


def test_measured_memory_overrides_the_card(pair: list[NodeView]) -> None:
    with pytest.raises(NoPlacement):
        plan(TINY, pair, replace(way(), free_bytes={"a": 10}))
    limited = plan(TINY, pair, replace(way(), free_bytes={"a": 1 << 21}))
    assert "1.2 MiB of 2.0 MiB free" in limited.reasons[-1]
    unlimited = plan(TINY, pair, replace(way(), free_bytes={"a": UNLIMITED_BYTES}))
    assert unlimited.reasons[-1] == "Keys and values take at most 1.2 MiB."


def test_full_context_needs_the_memory_of_the_whole_context(pair: list[NodeView]) -> None:
    request = replace(TINY, kv_strategy=KvStrategy.FULL, context_tokens=2000)
    assert plan(request, pair, way()).kv_bytes == 2048 * 1024
    with pytest.raises(NoPlacement):
        plan(request, pair, replace(way(), free_bytes={"a": 2048 * 1024 - 1}))


def test_an_unknown_model_is_answered_with_the_models_there_are(pair: list[NodeView]) -> None:
    with pytest.raises(ModelNotFound, match="'huge'; served: tiny") as caught:
        plan(PlanRequest("huge"), pair, way())
    assert caught.value.metadata["model_id"] == "huge"
    with pytest.raises(ModelNotFound, match="proposer 'dream'; served: ngram"):
        plan(replace(TINY, proposer_model="dream"), pair, way())
    gone = [NodeView(view.card, Liveness.DEAD) for view in pair]
    with pytest.raises(ModelNotFound, match="served: none"):
        plan(TINY, gone, way())


def test_a_named_proposer_that_cannot_serve_is_never_replaced(
    pair: list[NodeView], make_card: MakeCard, ngram_offer: ModelOffer
) -> None:
    nodes = [*pair, alive(make_card("c", ngram_offer))]
    with pytest.raises(NoPlacement, match="no measured way"):
        plan(replace(TINY, proposer_node_id="c"), nodes, way())
    with pytest.raises(NoPlacement):
        plan(replace(TINY, proposer_node_id="nobody"), nodes, way())


def test_the_requested_block_size_is_kept_as_far_as_the_verifier_reaches(
    pair: list[NodeView],
) -> None:
    near = way(acceptance=0.9)
    assert plan(replace(TINY, block_size=3), pair, near).block_size == 3
    wide = plan(replace(TINY, block_size=40), pair, near)
    assert wide.block_size == 15
    assert any("40" in reason for reason in wide.reasons)
    with pytest.raises(ValueError, match="below 1"):
        plan(replace(TINY, block_size=0), pair, near)


def test_of_equal_candidates_the_lower_ids_win(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    nodes = [alive(make_card(node_id, verifier_offer, ngram_offer)) for node_id in ("c", "a", "b")]
    measured = Measurements(round_trips={(x, y): 0.0 for x in "abc" for y in "abc"})
    made = plan(TINY, nodes, measured)
    assert made.proposer is not None
    assert (made.verifier.node_id, made.proposer.node_id) == ("a", "a")


def conditioned(verifier_offer: ModelOffer, ngram_offer: ModelOffer) -> ModelOffer:
    """A drafter for that verifier, as a card offers it."""
    return replace(
        ngram_offer,
        model_id="drafter",
        kind=ModelKind.DFLASH,
        tokenizer_digest=verifier_offer.tokenizer_digest,
        target_weights_digest=verifier_offer.weights_digest,
        feature_width=8,
        encoder_digest="e" * 64,
        tapped_layers=(0, 1),
        block_size=7,
    )


def test_a_drafter_of_that_verifier_is_paired_and_its_kind_is_told(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    drafter = conditioned(verifier_offer, ngram_offer)
    nodes = [alive(make_card("a", verifier_offer)), alive(make_card("b", drafter))]
    made = plan(TINY, nodes, way())
    assert made.proposer is not None
    assert made.proposer.model_id == "drafter"
    assert made.block_size <= 7
    assert any("(dflash)" in reason and "never hidden" in reason for reason in made.reasons)
    ngram = plan(TINY, [nodes[0], alive(make_card("b", ngram_offer))], way())
    assert any("(ngram)" in reason and "while" in reason for reason in ngram.reasons)


def test_a_round_trip_that_nothing_hides_is_part_of_every_block(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    drafter = conditioned(verifier_offer, ngram_offer)
    free = replace(drafter, feature_width=0, encoder_digest="", tapped_layers=())
    measured = Measurements(
        round_trips={("a", "b"): 0.008},
        acceptances={("tiny", "drafter"): MeasuredAcceptance(1.0, 1000, 1.0, 1.0, 9.0)},
    )
    speeds = []
    for offer in (drafter, free):
        nodes = [alive(make_card("a", verifier_offer)), alive(make_card("b", offer))]
        made = plan(TINY, nodes, measured)
        assert made.block_size == 7
        speeds.append(made.predicted_tokens_per_second)
    # A verify step takes 10 ms, the way 8 ms, a draft 0.1 ms: after it, or behind it.
    assert speeds[0] == pytest.approx(8 / 0.0181)
    assert speeds[1] == pytest.approx(8 / 0.010)


def test_a_block_that_is_asked_for_is_cut_to_the_longest_draft(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    drafter = conditioned(verifier_offer, ngram_offer)
    nodes = [alive(make_card("a", verifier_offer)), alive(make_card("b", drafter))]
    made = plan(replace(TINY, block_size=12, proposer_model="drafter"), nodes, way())
    assert made.block_size == 7
    assert any("12" in reason and "longest draft" in reason for reason in made.reasons)


@pytest.mark.parametrize(
    ("hosts", "accelerator", "hides"),
    [
        (("h", "h"), "cpu", False),
        (("h", "i"), "cpu", True),
        (("", ""), "cpu", True),
        (("h", "h"), "cuda", True),
    ],
)
def test_processors_that_both_sides_share_hide_no_draft(
    make_card: MakeCard,
    verifier_offer: ModelOffer,
    ngram_offer: ModelOffer,
    hosts: tuple[str, str],
    accelerator: str,
    hides: bool,
) -> None:
    slow = replace(
        ngram_offer,
        model_id="slow",
        kind=ModelKind.AUTOREGRESSIVE,
        tokenizer_digest=verifier_offer.tokenizer_digest,
        step_costs=(StepCost(1, 0.004), StepCost(8, 0.004)),
    )
    cards = [
        replace(
            make_card(node, offer),
            host_id=host,
            accelerator=replace(make_card(node, offer).accelerator, kind=accelerator),
        )
        for node, offer, host in zip("ab", (verifier_offer, slow), hosts, strict=True)
    ]
    request = replace(TINY, proposer_model="slow", proposer_node_id="b")
    made = plan(request, [alive(card) for card in cards], way())
    told = [reason for reason in made.reasons if "(autoregressive)" in reason]
    assert ["while this one is verified" in reason for reason in told] == [hides]
    assert ["the verifier's processors" in reason for reason in told] == [not hides]
    apart = [alive(replace(card, host_id="")) for card in cards]
    speed = plan(request, apart, way()).predicted_tokens_per_second
    assert (made.predicted_tokens_per_second == speed) is hides
    assert made.predicted_tokens_per_second <= speed


@pytest.mark.parametrize(("digest", "assumed"), [("same", "0.95"), ("other", "0.60"), ("", "0.60")])
def test_more_is_assumed_of_the_verifiers_own_weights(
    make_card: MakeCard,
    verifier_offer: ModelOffer,
    ngram_offer: ModelOffer,
    digest: str,
    assumed: str,
) -> None:
    verifier = replace(verifier_offer, weights_digest=digest and "same")
    fewer_bits = replace(
        ngram_offer,
        kind=ModelKind.AUTOREGRESSIVE,
        tokenizer_digest=verifier.tokenizer_digest,
        weights_digest=digest,
    )
    nodes = [alive(make_card("a", verifier)), alive(make_card("b", fewer_bits))]
    made = plan(replace(TINY, proposer_model=fewer_bits.model_id), nodes, way())
    assert f"acceptance {assumed} assumed" in made.reasons[0]


def test_what_sessions_were_counts_for_more_than_what_is_added_up(
    make_card: MakeCard, verifier_offer: ModelOffer, ngram_offer: ModelOffer
) -> None:
    nodes = [alive(make_card("a", verifier_offer)), alive(make_card("b", ngram_offer))]
    predicted = plan(TINY, nodes, way())
    assert predicted.proposer is not None
    pair = (("a", verifier_offer.model_id), ("b", ngram_offer.model_id))

    def with_gain(gain: float, request: PlanRequest = TINY) -> Plan:
        return plan(request, nodes, replace(way(), gains={pair: gain}))

    slower, faster = with_gain(0.9), with_gain(9.0)
    assert slower.proposer is None
    assert any("0.90 times as fast as alone" in each.explanation for each in slower.rejections)
    # It may suit another text: the upper end of what is predicted stands.
    assert [trial.proposer.model_id for trial in slower.trials] == [ngram_offer.model_id]
    alone = predicted.predicted_alone_tokens_per_second
    assert faster.predicted_tokens_per_second == pytest.approx(9.0 * alone)
    assert "9.00 times as fast as alone" in faster.reasons[0]
    assert faster.predicted_tokens_per_second_low <= faster.predicted_tokens_per_second
    # Blocks of another size are another matter.
    asked = replace(TINY, block_size=3)
    assert with_gain(9.0, asked).predicted_tokens_per_second == (
        plan(asked, nodes, way()).predicted_tokens_per_second
    )

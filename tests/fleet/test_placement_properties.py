from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.card import Card, ModelKind, ModelOffer, Role, StepCost
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance, Measurements, NodeView, plan
from kakeya_fleet.fleet.placement.plan import Plan, PlanRequest, RejectionReason
from tests.support.breadth import again

MakeCard = Callable[..., Card]

# One node: its roles, speeds and state, drawn freely.
node_strategy = st.fixed_dictionaries(
    {
        "verifies": st.booleans(),
        "exact": st.booleans(),
        "step": st.sampled_from([0.0, 0.005, 0.01, 0.05]),
        "free": st.sampled_from([0, 1 << 30]),
        "liveness": st.sampled_from(Liveness),
        "protocol_max": st.sampled_from([1, 1, 1, 3]),
        "kinds": st.lists(st.sampled_from(ModelKind), max_size=3, unique=True),
        "draft": st.sampled_from([0.0001, 0.002, 0.02]),
        "tokenizer": st.sampled_from(["t", "u"]),
    }
)


def build(make_card: MakeCard, index: int, drawn: dict[str, object]) -> NodeView:
    offers: list[ModelOffer] = []
    step, draft = float(str(drawn["step"])), float(str(drawn["draft"]))
    if drawn["verifies"]:
        costs = (StepCost(1, step), StepCost(16, step * 1.5)) if step else ()
        offers.append(
            ModelOffer(
                "tiny",
                Role.VERIFIER,
                ModelKind.AUTOREGRESSIVE,
                tokenizer_digest="t",
                kv_bytes_per_token=64,
                step_costs=costs,
                exact=bool(drawn["exact"]),
            )
        )
    kinds = drawn["kinds"]
    assert isinstance(kinds, list)
    offers += [
        ModelOffer(
            str(kind),
            Role.PROPOSER,
            kind,
            tokenizer_digest=str(drawn["tokenizer"]),
            step_costs=(StepCost(1, draft), StepCost(8, draft * 2)),
        )
        for kind in kinds
    ]
    card = make_card(
        f"n{index}",
        *offers,
        free=drawn["free"],
        protocol_min=drawn["protocol_max"],
        protocol_max=drawn["protocol_max"],
    )
    liveness = drawn["liveness"]
    assert isinstance(liveness, Liveness)
    return NodeView(card, liveness)


requests = st.builds(
    PlanRequest,
    verifier_model=st.just("tiny"),
    proposer_model=st.sampled_from(["", "", "ngram", "dflash"]),
    proposer_node_id=st.sampled_from(["", "", "n1"]),
    verifier_node_id=st.sampled_from(["", "", "n0"]),
    without_proposer=st.sampled_from([False, False, True]),
    block_size=st.sampled_from([None, 1, 8]),
)


def outcome(request: PlanRequest, nodes: list[NodeView], measured: Measurements) -> Plan | str:
    try:
        return plan(request, nodes, measured)
    except FleetError as error:
        return f"{error.reason} {error}"


def check_exactness(made: Plan, nodes: list[NodeView], *, named: bool) -> None:
    """No drafts for an inexact verifier unless named; then the plan says so, and only then."""
    exact_ids = {
        view.card.node_id
        for view in nodes
        if any(offer.exact for offer in view.card.offers(Role.VERIFIER))
    }
    risky = made.proposer is not None and made.verifier.node_id not in exact_ids
    assert named or not risky
    assert made.exact is not risky
    assert any("not exact" in reason for reason in made.reasons) is risky
    refused = [line for line in made.rejections if line.reason is RejectionReason.NOT_EXACT]
    assert not (named and refused)
    assert exact_ids.isdisjoint(line.verifier.node_id for line in refused)
    assert all(line.proposer is not None for line in refused)


@again(4)
@given(
    request_=requests,
    drawn=st.lists(node_strategy, min_size=1, max_size=4),
    ways=st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 3)), st.sampled_from([0.0, 0.001, 0.3])
    ),
    rate=st.none() | st.floats(0.0, 1.0),
    seed=st.integers(0, 2**32),
)
@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_every_plan_accounts_for_each_candidate_and_is_no_slower_than_alone(
    make_card: MakeCard,
    request_: PlanRequest,
    drawn: list[dict[str, object]],
    ways: dict[tuple[int, int], float],
    rate: float | None,
    seed: int,
) -> None:
    nodes = [build(make_card, index, fields) for index, fields in enumerate(drawn)]
    measured = Measurements(
        round_trips={(f"n{x}", f"n{y}"): seconds for (x, y), seconds in ways.items()},
        acceptances={}
        if rate is None
        else {
            ("tiny", str(kind)): MeasuredAcceptance(rate, 1000, rate, rate, 9.0)
            for kind in ModelKind
        },
    )
    made = outcome(request_, nodes, measured)
    shuffled = list(nodes)
    Random(seed).shuffle(shuffled)
    assert outcome(request_, shuffled, measured) == made
    if isinstance(made, str):
        return
    named = bool(request_.proposer_model or request_.proposer_node_id)
    check_exactness(made, nodes, named=named and not request_.without_proposer)
    if not named or request_.without_proposer:
        fastest_alone = max(
            line.predicted_tokens_per_second for line in made.rejections if line.proposer is None
        ) if any(line.proposer is None for line in made.rejections) else 0.0  # fmt: skip
        assert made.predicted_tokens_per_second >= made.predicted_alone_tokens_per_second
        assert made.predicted_tokens_per_second >= fastest_alone
    looked_at = [(line.verifier.node_id, line.proposer) for line in made.rejections]
    looked_at.append((made.verifier.node_id, made.proposer))
    assert len(looked_at) == len(set(looked_at))
    unfit = {
        line.verifier.node_id
        for line in made.rejections
        if line.proposer is None and line.predicted_tokens_per_second == 0.0
    }
    proposers = sum(len(view.card.offers(Role.PROPOSER)) for view in nodes)
    verifiers = [view.card.node_id for view in nodes if view.card.offers(Role.VERIFIER)]
    fit = [node_id for node_id in verifiers if node_id not in unfit]
    assert len(looked_at) == len(unfit) + len(fit) * (1 + proposers)
    assert all(line.explanation for line in made.rejections)
    assert made.reasons


@again(4)
@given(
    request_=requests,
    exact=st.lists(st.booleans(), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from([0.005, 0.01]), min_size=3, max_size=3),
    rate=st.sampled_from([0.0, 0.6, 0.95]),
)
@settings(
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_of_nodes_that_could_all_pair_only_exact_or_named_ones_do(
    make_card: MakeCard, request_: PlanRequest, exact: list[bool], steps: list[float], rate: float
) -> None:
    everything: dict[str, object] = {
        "verifies": True,
        "free": 1 << 30,
        "liveness": Liveness.ALIVE,
        "protocol_max": 1,
        "kinds": [ModelKind.NGRAM, ModelKind.DFLASH],
        "draft": 0.0001,
        "tokenizer": "t",
    }
    nodes = [
        build(make_card, index, {**everything, "exact": is_exact, "step": steps[index]})
        for index, is_exact in enumerate(exact)
    ]
    measured = Measurements(
        round_trips={(f"n{x}", f"n{y}"): 0.0001 for x in range(3) for y in range(3)},
        acceptances={
            ("tiny", str(kind)): MeasuredAcceptance(rate, 1000, rate, rate, 9.0)
            for kind in ModelKind
        },
    )
    named = request_.names_proposer
    if request_.proposer_node_id == "n1" and len(nodes) == 1 and named:
        assert isinstance(outcome(request_, nodes, measured), str)
        return
    made = plan(request_, nodes, measured)
    check_exactness(made, nodes, named=named)
    assert (made.proposer is not None) or not named

"""What callers hold is counted, given back, refused by name, and seen."""

from __future__ import annotations

import threading

import pytest

from kakeya_fleet.node.admission.allowance import Allowance
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.knob import Unit
from kakeya_fleet.node.admission.limits import CallLimits, DraftLimits, Limits
from kakeya_fleet.node.admission.share import Cause
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import TooManyStreams
from tests.support.allowances import allowances_of

ANN, BOB = Caller("10.0.0.1"), Caller("10.0.0.2")


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics()


@pytest.fixture
def streams(metrics: NodeMetrics) -> Allowance:
    """Ten places, two of them kept for who holds little."""
    shared = allowances_of(metrics, drafts=DraftLimits(streams=10))
    return shared.share("drafts.streams", TooManyStreams)


def told(metrics: NodeMetrics, name: str, **labels: str) -> float:
    said = metrics.registry.get_sample_value(name, {"limit": "drafts.streams", **labels})
    assert said is not None
    return said


def test_who_holds_most_is_refused_first_and_told_why(
    streams: Allowance, metrics: NodeMetrics
) -> None:
    for _ in range(8):
        streams.take(ANN)
    with pytest.raises(TooManyStreams) as refused:
        streams.take(ANN)
    assert refused.value.metadata == {"limit": "10", "used": "8", "cause": "share"}
    streams.take(BOB)
    assert (streams.used, streams.held(ANN), streams.held(BOB)) == (9, 8, 1)
    assert streams.greediest() == ANN
    streams.take(Caller("10.0.0.3"))
    with pytest.raises(TooManyStreams) as refused:
        streams.take(Caller("10.0.0.4"))
    assert refused.value.metadata["cause"] == "full"
    assert streams.refused_count == {Cause.SHARE: 1, Cause.FULL: 1}
    assert told(metrics, "kakeya_admission_used") == told(metrics, "kakeya_admission_limit") == 10
    assert told(metrics, "kakeya_admission_refused_total", reason="share") == 1
    assert told(metrics, "kakeya_admission_refused_total", reason="full") == 1


def test_a_place_is_held_for_as_long_as_its_context(streams: Allowance) -> None:
    with pytest.raises(KeyError), streams.holding(ANN, 3):
        assert streams.held(ANN) == 3
        raise KeyError
    assert streams.used == streams.held(ANN) == 0
    assert streams.greediest() is None


def test_nobody_gives_back_what_it_does_not_hold(streams: Allowance) -> None:
    streams.take(ANN)
    with pytest.raises(ValueError, match="gives back more"):
        streams.give_back(ANN, 2)


def test_threads_never_hold_more_than_there_is(streams: Allowance) -> None:
    most: list[int] = []

    def use() -> None:
        for _ in range(200):
            try:
                with streams.holding(ANN):
                    most.append(streams.used)
            except TooManyStreams:
                most.append(streams.used)

    threads = [threading.Thread(target=use) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 10
    assert streams.used == 0


def test_every_bound_says_why_and_in_what_unit_it_is() -> None:
    knobs = {knob.name: knob for knob in Limits().knobs()}
    assert all(knob.why.endswith(".") and knob.value > 0 for knob in knobs.values())
    assert knobs["http.body_bytes"].unit is Unit.BYTES
    assert knobs["calls.request_seconds"].unit is Unit.SECONDS
    assert knobs["drafts.streams"].unit is Unit.PLACES


def test_the_uses_are_those_of_all_bounds_in_their_order(streams: Allowance) -> None:
    shared = allowances_of(calls=CallLimits(at_once=7))
    shared.share("drafts.streams", TooManyStreams).take(ANN)
    uses = {use.knob.name: use for use in shared.uses()}
    assert list(uses) == [knob.name for knob in Limits().knobs()]
    assert uses["drafts.streams"].used == 1
    assert uses["drafts.opening_seconds"].used is None
    assert uses["calls.at_once"].knob.value == 7


def test_what_is_bounded_elsewhere_is_shown_beside_the_rest() -> None:
    metrics = NodeMetrics()
    allowances = Allowances(Limits(), metrics)
    known, refused = 3, 0
    allowances.watch("membership.nodes", lambda: known, lambda: refused)
    known, refused = 7, 2
    (use,) = (each for each in allowances.uses() if each.knob.name == "membership.nodes")
    assert (use.used, use.refused) == (7, {Cause.FULL: 2})
    assert told(metrics, "kakeya_admission_used", limit="membership.nodes") == 7
    assert told(metrics, "kakeya_admission_limit", limit="membership.nodes") == use.knob.value


def test_a_unit_is_the_end_of_a_knobs_name() -> None:
    units = {knob.name: knob.unit for knob in Limits().knobs()}
    assert units["drafts.history_tokens"] is Unit.TOKENS
    assert units["http.body_values"] is Unit.VALUES
    assert units["membership.dials_a_second"] is Unit.A_SECOND
    assert units["membership.card_bytes"] is Unit.BYTES
    assert units["http.idle_seconds"] is Unit.SECONDS
    assert units["drafts.streams"] is Unit.PLACES

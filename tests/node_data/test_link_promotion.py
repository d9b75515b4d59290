"""When a road is wanted, what goes by it, and when it is left: no link gets slower."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.node.links.contract import RoadKind
from kakeya_fleet.node.links.link_limits import LARGE_BYTES
from kakeya_fleet.node.links.link_log import ChangeCause
from kakeya_fleet.node.links.promotion import (
    FIRST_PAUSE_SECONDS,
    IDLE_SECONDS,
    IN_A_ROW,
    LARGE_TENSORS,
    LONGEST_PAUSE_SECONDS,
    PEER_SECONDS,
    PROVEN_SECONDS,
    LinkMode,
    Promotion,
)
from kakeya_fleet.node.links.road_trial import SAMPLES, RoadTrial, Verdict

LOCAL, RING, GRPC = RoadKind.LOCAL, RoadKind.RING, RoadKind.GRPC
LARGE = 1 << 20


def promoted(mode=LinkMode.AUTO, kinds=(LOCAL, RING), is_caller=True):
    return Promotion(mode, kinds, is_caller=is_caller)


def busy(promotion, now=0.0):
    for _ in range(LARGE_TENSORS):
        promotion.saw(LARGE, now)


def carry(promotion, count, road_seconds, chunk_seconds, byte_count=LARGE, now=0.0):
    """Sends tensors; gives by which ways they went."""
    ways = []
    for _ in range(count):
        promotion.saw(byte_count, now)
        by_road = promotion.takes_road(byte_count)
        ways.append(by_road)
        promotion.measured(byte_count, road_seconds if by_road else chunk_seconds, by_road=by_road)
    return ways


def test_a_road_is_wanted_once_large_tensors_travel():
    promotion = promoted()
    assert promotion.proposal(0.0) is promotion.next_proposal() is None
    for _ in range(100):
        promotion.saw(LARGE_BYTES - 1, 0.0)
    assert promotion.proposal(0.0) is None
    busy(promotion)
    assert promotion.proposal(0.0) is LOCAL
    promotion.building()
    assert promotion.proposal(0.0) is None


@pytest.mark.parametrize(
    ("mode", "kinds", "wanted"),
    [
        (LinkMode.GRPC, (LOCAL, RING), None),
        (LinkMode.LOCAL, (LOCAL, RING), LOCAL),
        (LinkMode.RING, (LOCAL, RING), RING),
        (LinkMode.RING, (LOCAL,), None),
        (LinkMode.AUTO, (RING,), RING),
        (LinkMode.AUTO, (), None),
    ],
)
def test_the_configuration_decides(mode, kinds, wanted):
    promotion = promoted(mode, kinds)
    if mode is LinkMode.AUTO:
        busy(promotion)
    assert promotion.proposal(0.0) is wanted


def test_only_the_caller_proposes():
    for mode in LinkMode:
        promotion = promoted(mode, is_caller=False)
        busy(promotion)
        assert promotion.proposal(1e9) is None


def test_a_forced_road_carries_everything_and_stays():
    promotion = promoted(LinkMode.RING)
    promotion.ready(RING, 0.0)
    assert promotion.standing.kind is RING
    assert promotion.standing.cause is ChangeCause.FORCED
    # Without measuring, however slow it is.
    assert all(carry(promotion, 50, 9.0, 1.0))
    assert promotion.takes_road(1)
    assert not promotion.takes_road(0)
    assert not promotion.is_trying(LARGE)
    assert promotion.leave(1e9) is None


@pytest.mark.parametrize(("road_seconds", "stays"), [(0.89, True), (0.91, False), (3.0, False)])
def test_a_road_stays_only_if_it_is_a_tenth_faster(road_seconds, stays):
    promotion = promoted()
    busy(promotion)
    promotion.ready(LOCAL, 0.0)
    assert promotion.standing.kind is GRPC
    assert promotion.is_trying(LARGE)
    ways = carry(promotion, 4 * SAMPLES, road_seconds, 1.0)
    assert min(ways[: 2 * SAMPLES].count(way) for way in (True, False)) >= SAMPLES - 1
    assert ways[-SAMPLES:] == [stays] * SAMPLES
    assert not promotion.is_trying(LARGE)
    leave = promotion.leave(0.0)
    if stays:
        assert leave is None
        assert promotion.standing.kind is LOCAL
        assert "shared memory takes 890 ms for 1024 KiB, gRPC 1e+03 ms" in promotion.standing.reason
    else:
        cause, reason = leave
        assert cause is ChangeCause.SLOWER
        assert "gRPC 1e+03 ms" in reason
        assert promotion.standing.kind is GRPC


def test_sizes_are_judged_each_for_itself():
    promotion = promoted()
    promotion.ready(LOCAL, 0.0)
    carry(promotion, 20, 0.5, 1.0, 1 << 24)
    carry(promotion, 20, 2.0, 1.0, 1 << 18)
    assert promotion.takes_road(1 << 24)
    assert not promotion.takes_road(1 << 18)
    assert promotion.leave(0.0) is None
    assert promotion.standing.kind is LOCAL
    # Small ones never go by it: an announcement alone is as long as they are.
    assert not promotion.takes_road(LARGE_BYTES - 1)


def test_a_road_that_becomes_slower_is_compared_anew_and_left():
    promotion = promoted()
    promotion.ready(LOCAL, 0.0)
    carry(promotion, 40, 0.5, 1.0)
    assert promotion.standing.kind is LOCAL
    carry(promotion, 60, 2.0, 1.0)
    assert promotion.leave(0.0)[0] is ChangeCause.SLOWER


def test_a_road_by_which_the_other_end_sends_is_not_left_by_this_one():
    promotion = promoted()
    promotion.ready(LOCAL, 0.0)
    promotion.received(LARGE, 10.0, by_road=True)
    carry(promotion, 40, 2.0, 1.0, now=10.0)
    assert promotion.leave(10.0) is None
    for _ in range(IN_A_ROW):
        promotion.received(LARGE, 12.0, by_road=True)
    assert promotion.standing.kind is LOCAL
    assert promotion.standing.cause is ChangeCause.PEER
    assert promotion.leave(12.0 + PEER_SECONDS - 1) is None
    assert promotion.leave(12.0 + PEER_SECONDS)[0] is ChangeCause.SLOWER
    for _ in range(IN_A_ROW):
        promotion.received(LARGE, 12.0, by_road=False)
    assert promotion.standing.kind is GRPC


def test_a_trial_of_the_other_end_is_no_change():
    promotion = promoted()
    promotion.ready(LOCAL, 0.0)
    before = promotion.standing
    trial = RoadTrial()
    for _ in range(64):
        promotion.received(LARGE, 1.0, by_road=trial.takes_road())
    assert promotion.standing is before


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.RING])
def test_a_ring_that_the_host_has_not_yet_is_asked_for_again(mode):
    promotion = promoted(mode, (RING,))
    is_forced = mode is LinkMode.RING
    assert ("ring, which is not ready" in promotion.standing.reason) is is_forced
    busy(promotion)
    promotion.unavailable(RING, "not tried yet", 0.0)
    assert promotion.proposal(0.0) is None
    assert ("not tried yet" in promotion.standing.reason) is is_forced
    assert promotion.standing.kind is GRPC
    assert promotion.proposal(FIRST_PAUSE_SECONDS) is RING
    promotion.unavailable(RING, "not tried yet", 1.0)
    assert promotion.proposal(1.5) is None
    promotion.look_again()
    assert promotion.proposal(1.5) is RING


def test_a_forced_road_without_traffic_is_put_off_as_well():
    """Seconds of a clock begin anywhere: that nothing travelled yet is no reason to hurry."""
    promotion = promoted(LinkMode.RING)
    promotion.failed(RING, ChangeCause.PEER, "no", 1e5)
    assert promotion.proposal(1e5) is None
    assert promotion.next_proposal() == 1e5 + FIRST_PAUSE_SECONDS


def test_an_idle_road_is_left_and_comes_back_with_traffic():
    promotion = promoted()
    busy(promotion)
    promotion.ready(LOCAL, 5.0)
    assert promotion.leave(5.0 + IDLE_SECONDS - 1) is None
    cause, reason = promotion.leave(5.0 + IDLE_SECONDS)
    assert cause is ChangeCause.IDLE
    promotion.failed(LOCAL, cause, reason, 200.0)
    assert promotion.proposal(1e6) is None
    busy(promotion, 300.0)
    assert promotion.proposal(300.0) is LOCAL


def test_what_failed_is_tried_again_ever_later_and_the_next_kind_meanwhile():
    promotion = promoted()
    busy(promotion)
    now, pauses = 0.0, []
    for _ in range(12):
        # The ring is out of the way for good.
        promotion.failed(RING, ChangeCause.FAULT, "no", now)
        promotion._pauses[RING].until = float("inf")
        promotion.failed(LOCAL, ChangeCause.FAULT, "it broke", now)
        due = promotion.next_proposal()
        pauses.append(due - now)
        assert promotion.proposal(due - 1e-3) is None
        promotion.saw(LARGE, due)
        assert promotion.proposal(due) is LOCAL
        now = due
    assert pauses[:4] == [FIRST_PAUSE_SECONDS * factor for factor in (1, 2, 4, 8)]
    assert pauses[-1] == LONGEST_PAUSE_SECONDS
    assert promotion.standing.reason == "it broke"
    # One that stood for a while begins anew.
    promotion.ready(LOCAL, now)
    promotion.saw(LARGE, now + PROVEN_SECONDS)
    promotion.failed(LOCAL, ChangeCause.FAULT, "it broke", now + PROVEN_SECONDS)
    assert promotion.next_proposal() == now + PROVEN_SECONDS + FIRST_PAUSE_SECONDS

    other = promoted()
    busy(other)
    other.failed(LOCAL, ChangeCause.FAULT, "no", 0.0)
    assert other.proposal(0.0) is RING


@settings(deadline=None, max_examples=60)
@given(
    chunks=st.floats(1e-4, 1.0),
    ratio=st.floats(0.05, 20.0),
    noise=st.lists(st.floats(0.98, 1.02), min_size=64, max_size=64),
    sizes=st.sampled_from([(LARGE,), (LARGE, LARGE + 1), (LARGE, 2 * LARGE - 1)]),
)
def test_the_way_in_the_end_is_never_the_slower_one(chunks, ratio, noise, sizes):
    """Whatever pattern the payloads have: the last way is within a tenth of the better."""
    promotion = promoted()
    promotion.ready(LOCAL, 0.0)
    for index, factor in enumerate(noise):
        byte_count = sizes[index % len(sizes)]
        by_road = promotion.takes_road(byte_count)
        seconds = chunks * (ratio if by_road else 1.0) * byte_count / LARGE * factor
        promotion.measured(byte_count, seconds, by_road=by_road)
    paces = {True: ratio, False: 1.0}
    assert paces[promotion.takes_road(LARGE)] <= 1.2 * min(paces.values())


def test_payloads_that_come_by_turns_are_not_taken_for_ways():
    """Every second one takes twice as long, by both ways alike."""
    trial = RoadTrial()
    for index in range(2 * SAMPLES):
        by_road = trial.takes_road()
        trial.add(2.0 if index % 2 else 1.0, by_road=by_road)
    assert trial.verdict is Verdict.CHUNKS
    assert trial.road_pace == trial.chunk_pace


def test_a_verdict_needs_samples_of_both_ways():
    trial = RoadTrial()
    for _ in range(100):
        trial.add(1.0, by_road=True)
    assert trial.verdict is Verdict.OPEN
    for _ in range(SAMPLES - 1):
        trial.add(2.0, by_road=False)
    assert trial.verdict is Verdict.OPEN
    trial.add(2.0, by_road=False)
    assert trial.verdict is Verdict.ROAD
    # One slow tensor changes nothing.
    trial.add(50.0, by_road=True)
    assert trial.takes_road()

"""When a road is wanted, what goes by it, and when it is left: no link gets slower."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.node.links.protocol.changes import ChangeCause
from kakeya_fleet.node.links.protocol.contract import LinkMode, RoadKind
from kakeya_fleet.node.links.protocol.messages import RoadMessage, RoadStep
from kakeya_fleet.node.links.protocol.promotion import (
    MOST_CLEARING,
    MOST_TERM_CHARACTERS,
    NONCE_BYTES,
    due,
    step,
)
from kakeya_fleet.node.links.protocol.promotion_events import (
    Answer,
    Broke,
    Build,
    Built,
    Changed,
    Cleared,
    Drop,
    Heard,
    LookAgain,
    Planned,
    Propose,
    Received,
    Resend,
    ResendCorrupt,
    Say,
    SetOut,
    Tick,
    Timed,
    Took,
    Unavailable,
    Use,
)
from kakeya_fleet.node.links.protocol.promotion_state import opened
from kakeya_fleet.node.links.protocol.road_use import IN_A_ROW, is_compared, takes_road
from kakeya_fleet.node.links.protocol.settings import LARGE_BYTES, LinkSettings
from kakeya_fleet.node.links.protocol.trial import SAMPLES, RoadTrial, Verdict
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

LOCAL, RING, GRPC = RoadKind.LOCAL, RoadKind.RING, RoadKind.GRPC
LARGE = 1 << 20
SETTINGS = LinkSettings()
TERMS = {"at": "here"}
NONCE = bytes(NONCE_BYTES)


def end(mode=LinkMode.AUTO, kinds=(LOCAL, RING), is_caller=True):
    return opened(mode, kinds, is_caller=is_caller, settings=SETTINGS)


def heard(state, now, generation, step_, **fields):
    return step(state, Heard(RoadMessage(generation, step_, **fields)), now)


def busy(state, now=0.0):
    """What is asked for once large tensors travel."""
    return [effect for _ in range(SETTINGS.large_tensors) for effect in step(state, Took(), now)]


def stand(state, now=0.0):
    """Takes a proposed road to where it stands."""
    generation = state.agreement.generation
    step(state, Planned(generation, TERMS, NONCE), now)
    heard(state, now, generation, RoadStep.ANSWER, terms=TERMS)
    step(state, Built(generation), now)
    return heard(state, now, generation, RoadStep.READY)


def on_road(now=0.0, kinds=(LOCAL,)):
    """A caller in `auto` whose road stands."""
    state = end(kinds=kinds)
    busy(state, now)
    assert Use(1) in stand(state, now)
    return state


def carry(state, count, road_seconds, chunk_seconds, byte_count=LARGE, now=0.0):
    """Sends tensors; gives by which ways they went, and all effects."""
    ways, effects = [], []
    for _ in range(count):
        if state.road is None:
            break
        by_road = takes_road(state, byte_count)
        ways.append(by_road)
        seconds = road_seconds if by_road else chunk_seconds
        for event in (Took(), SetOut(byte_count), Timed(byte_count, seconds, by_road)):
            effects += step(state, event, now)
    return ways, effects


def said(effects):
    return [effect.message for effect in effects if isinstance(effect, Say)]


def test_a_road_is_wanted_once_large_tensors_travel() -> None:
    state = end()
    assert step(state, Tick(), 0.0) == ()
    assert due(state, 0.0) is None
    for _ in range(SETTINGS.large_tensors - 1):
        assert step(state, Took(), 0.0) == ()
    assert step(state, Received(by_road=False), 0.0) == (Propose(1, LOCAL),)
    assert busy(state) == []


def test_the_configuration_decides() -> None:
    for mode, kinds, wanted in (
        (LinkMode.GRPC, (LOCAL, RING), []),
        (LinkMode.LOCAL, (LOCAL, RING), [Propose(1, LOCAL)]),
        (LinkMode.RING, (LOCAL, RING), [Propose(1, RING)]),
        (LinkMode.RING, (LOCAL,), []),
        (LinkMode.AUTO, (RING,), [Propose(1, RING)]),
        (LinkMode.AUTO, (), []),
    ):
        state = end(mode, kinds)
        proposed = list(step(state, Tick(), 0.0))
        if mode is LinkMode.AUTO:
            assert proposed == []
            proposed = busy(state)
        assert proposed == wanted, (mode, kinds)
        assert busy(end(mode, kinds, is_caller=False)) == []


def test_both_ends_build_and_use_it_when_both_are_ready() -> None:
    caller, other = end(LinkMode.LOCAL), end(LinkMode.LOCAL, is_caller=False)
    assert step(caller, Tick(), 0.0) == (Propose(1, LOCAL),)
    (proposal,) = said(step(caller, Planned(1, TERMS, NONCE), 0.0))
    assert step(other, Heard(proposal), 0.0) == (Answer(1, LOCAL, NONCE, TERMS),)
    (answer,) = said(step(other, Planned(1, {"at": "there"}), 0.0))
    assert step(caller, Heard(answer), 0.0) == (Build(1, {"at": "there"}),)
    # A second answer says nothing new.
    assert step(caller, Heard(answer), 0.0) == ()
    (ready,) = said(step(other, Built(1), 0.0))
    assert step(caller, Heard(ready), 0.0) == ()
    effects = step(caller, Built(1), 0.0)
    (also_ready,) = said(effects)
    assert Use(1) in effects
    assert Use(1) in step(other, Heard(also_ready), 0.0)
    for state in (caller, other):
        assert (state.standing.kind, state.standing.cause) == (LOCAL, ChangeCause.FORCED)
        assert state.built == state.road.generation == 1


def test_a_forced_road_carries_everything_and_stays() -> None:
    state = end(LinkMode.RING)
    step(state, Tick(), 0.0)
    stand(state)
    # Without measuring, however slow it is, and however idle.
    ways, _ = carry(state, 50, 9.0, 1.0)
    assert all(ways)
    assert takes_road(state, 1)
    assert not takes_road(state, 0)
    assert not is_compared(state, LARGE)
    assert step(state, Tick(), 1e9) == ()
    assert state.standing.kind is RING


@pytest.mark.parametrize(("road_seconds", "stays"), [(0.89, True), (0.91, False), (3.0, False)])
def test_a_road_stays_only_if_it_is_a_tenth_faster(road_seconds, stays) -> None:
    state = on_road()
    assert state.standing.kind is GRPC
    assert is_compared(state, LARGE)
    ways, effects = carry(state, 4 * SAMPLES, road_seconds, 1.0)
    assert min(ways[: 2 * SAMPLES].count(way) for way in (True, False)) >= SAMPLES - 1
    if stays:
        assert ways[-SAMPLES:] == [True] * SAMPLES
        assert not is_compared(state, LARGE)
        assert (state.standing.kind, state.standing.cause) == (LOCAL, ChangeCause.FASTER)
        assert "shared memory takes 890 ms for 1024 KiB, gRPC 1e+03 ms" in state.standing.reason
        return
    assert Drop(1) in effects
    (left,) = said(effects)
    assert left.step is RoadStep.FAILED
    assert "gRPC 1e+03 ms" in left.reason
    assert (state.standing.kind, state.standing.cause) == (GRPC, ChangeCause.SLOWER)
    assert state.standing.reason == left.reason


def test_sizes_are_judged_each_for_itself() -> None:
    state = on_road()
    carry(state, 20, 0.5, 1.0, 1 << 24)
    carry(state, 20, 2.0, 1.0, 1 << 18)
    assert takes_road(state, 1 << 24)
    assert not takes_road(state, 1 << 18)
    assert state.standing.kind is LOCAL
    # Small ones never go by it: an announcement alone is as long as they are.
    assert not takes_road(state, LARGE_BYTES - 1)


def test_a_road_that_becomes_slower_is_compared_anew_and_left() -> None:
    state = on_road()
    carry(state, 40, 0.5, 1.0)
    assert state.standing.kind is LOCAL
    _, effects = carry(state, 60, 2.0, 1.0)
    assert Drop(1) in effects
    assert state.standing.cause is ChangeCause.SLOWER


def test_a_road_by_which_the_other_end_sends_is_not_left_by_this_one() -> None:
    state = on_road()
    step(state, Received(by_road=True), 10.0)
    carry(state, 40, 2.0, 1.0, now=10.0)
    assert state.road is not None
    for _ in range(IN_A_ROW):
        step(state, Received(by_road=True), 12.0)
    assert (state.standing.kind, state.standing.cause) == (LOCAL, ChangeCause.PEER)
    assert step(state, Tick(), 12.0 + SETTINGS.peer_seconds - 1) == ()
    step(state, Tick(), 12.0 + SETTINGS.peer_seconds)
    assert (state.standing.kind, state.standing.cause) == (GRPC, ChangeCause.SLOWER)


def test_the_way_of_the_other_end_is_told_and_its_trial_is_not() -> None:
    state = on_road()
    before, trial = state.standing, RoadTrial()
    for _ in range(64):
        step(state, Received(by_road=trial.takes_road), 1.0)
        trial.set_out()
    assert state.standing is before
    for way, kind in ((True, LOCAL), (False, GRPC)):
        for _ in range(IN_A_ROW):
            step(state, Received(by_road=way), 1.0)
        assert (state.standing.kind, state.standing.cause) == (kind, ChangeCause.PEER)
        assert "the other end sends by" in state.standing.reason


@pytest.mark.parametrize("mode", [LinkMode.AUTO, LinkMode.RING])
def test_a_ring_that_the_host_has_not_yet_is_asked_for_again(mode) -> None:
    state = end(mode, (RING,))
    is_forced = mode is LinkMode.RING
    assert ("ring, which is not ready" in state.standing.reason) is is_forced
    busy(state)
    effects = step(state, Unavailable(1, "not tried yet"), 0.0)
    # The other end has not heard of it, and the number is free again.
    assert said(effects) == []
    assert any(isinstance(effect, Changed) for effect in effects) is is_forced
    assert ("not tried yet" in state.standing.reason) is is_forced
    assert state.standing.kind is GRPC
    assert due(state, 0.0) == SETTINGS.again.first_seconds
    assert step(state, Tick(), SETTINGS.again.first_seconds) == (Propose(1, RING),)
    step(state, Unavailable(1, "not tried yet"), 1.0)
    assert step(state, Tick(), 1.5) == ()
    assert step(state, LookAgain(), 1.5) == (Propose(1, RING),)


def test_an_idle_road_is_left_and_comes_back_with_traffic() -> None:
    state = on_road(5.0)
    assert due(state, 5.0) == 5.0 + SETTINGS.judging_seconds
    assert step(state, Tick(), 4.0 + SETTINGS.idle_seconds) == ()
    assert Drop(1) in step(state, Tick(), 5.0 + SETTINGS.idle_seconds)
    assert (state.standing.cause, state.standing.kind) == (ChangeCause.IDLE, GRPC)
    assert step(state, Tick(), 1e6) == ()
    assert busy(state, 300.0) == [Propose(2, LOCAL)]


def test_what_failed_is_tried_again_ever_later_and_the_next_kind_meanwhile() -> None:
    state = end(LinkMode.AUTO, (LOCAL, RING))
    busy(state)
    assert Propose(2, RING) in step(state, Broke(1, "no"), 0.0)

    # Seconds of a clock begin anywhere: that nothing travelled yet is no reason to hurry.
    state, now, pauses = end(LinkMode.LOCAL, (LOCAL,)), 1e5, []
    step(state, Tick(), now)
    for generation in range(1, 13):
        effects = step(state, Broke(generation, "it broke"), now)
        assert effects[0] == Drop(generation)
        pauses.append(due(state, now) - now)
        assert step(state, Tick(), due(state, now) - 1e-3) == ()
        now = due(state, now)
        assert step(state, Tick(), now) == (Propose(generation + 1, LOCAL),)
    assert pauses[:4] == [SETTINGS.again.first_seconds * factor for factor in (1, 2, 4, 8)]
    assert pauses[-1] == SETTINGS.again.longest_seconds
    assert state.standing.reason == "shared memory failed: it broke"
    # One that stood for a while begins anew.
    stand(state, now)
    now += SETTINGS.proven_seconds
    step(state, Broke(13, "it broke"), now)
    assert due(state, now) == now + SETTINGS.again.first_seconds


@pytest.mark.parametrize("is_built", [False, True])
def test_an_end_that_says_nothing_is_waited_for_no_longer_than_its_deadline(is_built) -> None:
    state = end(LinkMode.LOCAL)
    step(state, Tick(), 0.0)
    assert due(state, 0.0) is None
    step(state, Planned(1, TERMS, NONCE), 1.0)
    seconds, words = SETTINGS.answer_seconds, "did not answer"
    if is_built:
        heard(state, 1.0, 1, RoadStep.ANSWER)
        step(state, Built(1), 1.0)
        seconds, words = SETTINGS.ready_seconds, "never ready"
    assert due(state, 1.0) == 1.0 + seconds
    assert step(state, Tick(), seconds) == ()
    drop, failed, _ = step(state, Tick(), 1.0 + seconds)
    assert drop == Drop(1)
    assert words in failed.message.reason


def test_a_fault_at_the_other_end_is_answered_and_what_it_carried_goes_again() -> None:
    state = on_road()
    effects = heard(state, 1.0, 1, RoadStep.FAILED, reason="it broke", through=7)
    (answer,) = said(effects)
    assert (answer.generation, answer.step) == (1, RoadStep.FAILED)
    # First what arrived until both had left it, then what did not.
    drop, _, resend, _ = effects
    assert (drop, resend) == (Drop(1), Resend(1, 7))
    assert (state.standing.kind, state.standing.cause) == (GRPC, ChangeCause.PEER)
    assert state.standing.reason == "the other end: it broke"
    # Said once more, it changes nothing.
    assert heard(state, 1.0, 1, RoadStep.FAILED, through=7) == (Resend(1, 7),)
    assert heard(state, 1.0, 0, RoadStep.FAILED, through=7) == (ResendCorrupt(8),)


def test_a_proposal_that_cannot_be_is_refused_with_a_reason() -> None:
    good = {"kind": LOCAL, "nonce": NONCE, "terms": TERMS}
    for fields, why in (
        ({"kind": None}, "takes no road unknown"),
        ({"kind": RING}, "takes no road ring"),
        ({"nonce": bytes(31)}, "nonce has 31"),
        ({"terms": {"k": "v" * (MOST_TERM_CHARACTERS + 1)}}, "too long"),
        ({"terms": {str(number): "" for number in range(33)}}, "too long"),
    ):
        state = end(kinds=(LOCAL,), is_caller=False)
        (refusal,) = said(heard(state, 0.0, 3, RoadStep.PROPOSE, **{**good, **fields}))
        assert (refusal.generation, refusal.step) == (3, RoadStep.FAILED)
        assert why in refusal.reason
        assert state.standing.kind is GRPC
    # One that the host has not is said, too; and a generation is proposed once.
    assert heard(state, 0.0, 4, RoadStep.PROPOSE, **good) == (Answer(4, LOCAL, NONCE, TERMS),)
    (refusal,) = said(step(state, Unavailable(4, "no memory"), 0.0))
    assert "no memory" in refusal.reason
    with pytest.raises(TensorOutOfOrder, match="proposed before"):
        heard(state, 0.0, 4, RoadStep.PROPOSE, **good)


def test_a_caller_that_proposes_road_after_road_waits_for_their_ends() -> None:
    """Each may have a process and a segment, which take a while to end."""
    state = end(kinds=(LOCAL,), is_caller=False)
    for generation in range(1, 40):
        effects = heard(state, 0.0, generation, RoadStep.PROPOSE, kind=LOCAL, nonce=NONCE)
        assert (Drop(generation - 1) in effects) is (1 < generation <= MOST_CLEARING + 1)
        assert state.clearing_count <= MOST_CLEARING
    assert "still being cleared" in said(effects)[0].reason
    step(state, Cleared(), 0.0)
    assert heard(state, 0.0, 40, RoadStep.PROPOSE, kind=LOCAL, nonce=NONCE) == (
        Answer(40, LOCAL, NONCE, {}),
    )


def test_steps_out_of_place_end_the_link() -> None:
    """Those of the wrong end, and a proposal beside a road that stands."""
    for is_caller, wrong in ((True, RoadStep.PROPOSE), (False, RoadStep.ANSWER)):
        with pytest.raises(TensorOutOfOrder, match="not one of the other end's"):
            heard(end(is_caller=is_caller), 0.0, 1, wrong)
    state = end(kinds=(LOCAL,), is_caller=False)
    heard(state, 0.0, 1, RoadStep.PROPOSE, kind=LOCAL, nonce=NONCE)
    step(state, Built(1), 0.0)
    heard(state, 0.0, 1, RoadStep.READY)
    with pytest.raises(TensorOutOfOrder, match="beside one that stands"):
        heard(state, 0.0, 2, RoadStep.PROPOSE, kind=LOCAL, nonce=NONCE)


@settings(deadline=None, max_examples=25)
@given(
    chunks=st.floats(1e-4, 1.0),
    ratio=st.floats(0.05, 20.0),
    noise=st.lists(st.floats(0.98, 1.02), min_size=64, max_size=64),
    sizes=st.sampled_from([(LARGE,), (LARGE, LARGE + 1), (LARGE, 2 * LARGE - 1)]),
)
def test_the_way_in_the_end_is_never_the_slower_one(chunks, ratio, noise, sizes) -> None:
    """Whatever pattern the payloads have: the last way is within a tenth of the better."""
    state = on_road()
    for index, factor in enumerate(noise):
        byte_count = sizes[index % len(sizes)]
        by_road = takes_road(state, byte_count)
        seconds = chunks * (ratio if by_road else 1.0) * byte_count / LARGE * factor
        step(state, SetOut(byte_count), 0.0)
        step(state, Timed(byte_count, seconds, by_road), 0.0)
    paces = {True: ratio, False: 1.0}
    assert paces[takes_road(state, LARGE)] <= 1.2 * min(paces.values())


def test_payloads_that_come_by_turns_are_not_taken_for_ways() -> None:
    """Every second one takes twice as long, by both ways alike."""
    trial = RoadTrial()
    for index in range(2 * SAMPLES):
        by_road = trial.takes_road
        trial.set_out()
        trial.add(2.0 if index % 2 else 1.0, by_road=by_road)
    assert trial.verdict is Verdict.CHUNKS
    assert trial.road_pace == trial.chunk_pace


def test_a_verdict_needs_samples_of_both_ways() -> None:
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
    assert trial.takes_road

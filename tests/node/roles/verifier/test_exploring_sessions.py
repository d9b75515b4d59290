"""Sessions that try a proposer on their own stream, over the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.speculation.place_rates import NOTHING_TRIED
from kakeya_fleet.fleet.placement.plan import Placement, Trial
from kakeya_fleet.node.roles.verifier.pairing import Pairing
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8] * 12


async def opened(verifier: nodes.Node, caller: calls.Caller, *trials: Trial) -> tuple[str, Pairing]:
    """A session whose plan begins alone and tries `trials`; and its pairing."""
    session = await caller.open(mode=runtime_pb2.SPECULATION_MODE_UNSPECIFIED)
    await caller.append(session, PROMPT)
    pairing = verifier.roles.sessions.opened(session).pairing
    pairing._plan = replace(pairing._plan, proposer=None, transport=None, trials=trials)
    return session, pairing


async def test_a_plan_says_who_is_on_trial(
    verifier: nodes.Node, proposer: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = calls.Caller(verifier.channel)
    there = Placement("proposer", "proposer", proposer.address, "ngram")
    session, pairing = await opened(verifier, caller, Trial(there, 1e9))
    monkeypatch.setattr(pairing, "_replan", lambda **_: None)
    before = (await caller.info(session)).plan
    assert (before.HasField("proposer"), before.exploring) == (False, False)
    assert [trial.proposer.model_id for trial in before.trials] == ["ngram"]
    roster = await pairing.connect(History())
    assert roster is not None
    roster._contest = replace(roster._contest, trial=0, is_warm=True)
    during = (await caller.info(session)).plan
    assert (during.proposer.node_id, during.exploring) == ("proposer", True)
    assert "on trial" in during.reasons[0]
    assert during.acceptance_rate_high > 0
    roster._contest = replace(roster._contest, leader=0, trial=None, is_warm=False)
    after = (await caller.info(session)).plan
    assert (after.proposer.node_id, after.exploring) == ("proposer", False)
    assert "measured to be faster on this stream" in after.reasons[0]


async def test_one_that_left_before_its_trial_costs_nothing_but_is_told(
    verifier: nodes.Node, proposer: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = calls.Caller(verifier.channel)
    gone = Placement("proposer", "proposer", proposer.address, "no-such-model")
    session, pairing = await opened(verifier, caller, Trial(gone, 1e9))
    monkeypatch.setattr(pairing, "_replan", lambda **_: None)
    stream = await caller.generate(session, 60)
    assert len(stream.token_ids) == 60
    assert not stream.done.speculation.proposers
    assert sum(fault.count for fault in stream.done.speculation.faults) >= 1
    # Shared with other tests of this node.
    verifier.roles.verifier._breakers._breakers.clear()


async def test_what_greedy_text_taught_says_nothing_of_text_at_a_temperature(
    verifier: nodes.Node, proposer: nodes.Node
) -> None:
    """A session that generates at a temperature is planned by what was measured at one."""
    caller = calls.Caller(verifier.channel)
    session, pairing = await opened(verifier, caller)
    role, model_id = verifier.roles.verifier, pairing.plan.verifier.model_id
    for sampled in (False, True):
        for number in range(8):
            role._ledgers._acceptances[sampled].record(
                (model_id, "ngram"),
                str(number),
                drafted_count=64,
                tried_count=64,
                accepted_count=0 if sampled else 64,
                now=role._context.clock(),
            )
    try:
        await pairing.connect(History())
        plan = pairing.plan
        known = {plan.proposer, *(trial.proposer for trial in plan.trials)}
        assert (await pairing.connect(History(), sampled=True)) is None
        assert pairing.plan.proposer is None
        assert not pairing.plan.trials
        await pairing.connect(History(), sampled=False)
        again = {pairing.plan.proposer, *(trial.proposer for trial in pairing.plan.trials)}
        assert again == known
        assert "ngram" in {each.model_id for each in again if each is not None}
        # Both are told to who asks the node, the greedy ones where there are any.
        assert role.acceptances()[model_id, "ngram"].acceptance_rate == 1.0
        await caller.generate(session, 4, temperature=0.9, seed=2)
        assert pairing._request.sampled
    finally:
        # Shared with other tests of this node.
        for ledger in role._ledgers._acceptances.values():
            ledger._sessions.clear()
            ledger._measured_at.clear()


async def test_one_that_rests_reads_no_history(
    verifier: nodes.Node, proposer: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = calls.Caller(verifier.channel)
    session, pairing = await opened(verifier, caller)
    there = Placement("proposer", "proposer", proposer.address, "ngram")
    pairing._plan = replace(pairing._plan, proposer=there)
    monkeypatch.setattr(pairing, "_replan", lambda **_: None)
    roster = await pairing.connect(History())
    assert roster is not None
    (leader,) = roster.rivals
    begun: list[int] = []
    monkeypatch.setattr(leader.source, "open", lambda history: begun.append(len(history)))
    leader.state.pace = leader.state.pace.resting(20, 16)
    await pairing.connect(History([1, 2]))
    assert not begun
    leader.state.pace = leader.state.pace.taken_up()
    await pairing.connect(History([1, 2, 3]))
    assert begun == [3]
    assert len((await caller.generate(session, 4)).token_ids) == 4


async def test_sessions_tell_each_other_of_forwards_beside_drafts_and_of_what_was_right(
    verifier: nodes.Node, proposer: nodes.Node
) -> None:
    caller = calls.Caller(verifier.channel)
    context = verifier.roles.verifier._lifecycle._context
    overlaps, rates = context.overlaps, context.rates
    (model_id,) = verifier.roles.verifiers
    key = ("proposer", "ngram")
    overlaps._found.clear()
    rates._found.clear()
    first = await caller.open(mode=calls.FIXED, proposer="ngram", proposer_node="proposer")
    await caller.append(first, PROMPT)
    await caller.generate(first, 20)
    await caller.close(first)
    await calls.until(lambda: (model_id, key) in overlaps._found)
    known, right = overlaps.get((model_id, key)), rates.get((model_id, key, False))
    assert known is not None
    assert right is not None
    assert known.forward_apart.count + known.forward_beside.count > 0
    second = await caller.open(mode=calls.FIXED, proposer="ngram", proposer_node="proposer")
    roster = await verifier.roles.sessions.opened(second).pairing.connect(History())
    assert roster is not None
    (rival,) = roster.rivals
    assert rival.state.pace.overlap == known
    assert rival.state.pace.places == right.remembered()
    # Of text at a temperature less is right: nothing of that is known yet, and nothing is lost.
    pairing = verifier.roles.sessions.opened(second).pairing
    await pairing.connect(History(), sampled=True)
    assert rival.state.pace.places == NOTHING_TRIED
    await pairing.connect(History(), sampled=False)
    assert rival.state.pace.places == right.remembered()

"""While all rest, a session that begins prepares no drafts, and drafts once they do not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.speculation.company import Company
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.replacing import replace_method

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8] * 12
TOKENS = 40

Preparing: TypeAlias = Callable[..., Awaitable[Roster | bool | None]]


async def test_one_that_begins_at_rest_prepares_no_drafts(
    verifier: nodes.Node, proposer: nodes.Node
) -> None:
    caller = calls.Caller(verifier.channel)
    alone = await caller.open()
    await caller.append(alone, PROMPT)
    expected = (await caller.generate(alone, TOKENS)).token_ids
    sessions: dict[bool, str] = {}
    connected: list[str] = []

    async def noted(
        what: str, honest: Preparing, *asked: History, **more: bool
    ) -> Roster | bool | None:
        connected.append(what)
        return await honest(*asked, **more)

    with pytest.MonkeyPatch.context() as resting:
        resting.setattr(Company, "rests", property(lambda _company: True))
        resting.setattr(Company, "receives_resting", property(lambda _company: True))
        for mode in (calls.FIXED, runtime_pb2.SPECULATION_MODE_UNSPECIFIED):
            fixed = mode is calls.FIXED
            session = await caller.open(
                mode=mode,
                proposer="ngram" if fixed else "",
                proposer_node="proposer" if fixed else "",
                block_size=4 if fixed else 0,
            )
            pairing = verifier.roles.sessions.opened(session).pairing
            replace_method(pairing, "connect", partial(noted, session, pairing.connect))
            vectors = partial(noted, f"vectors of {session}", pairing.conditioned)
            replace_method(pairing, "conditioned", vectors)
            await caller.append(session, PROMPT)
            stream = await caller.generate(session, TOKENS)
            assert stream.token_ids == expected
            # Who names a proposer has its drafts all the same.
            assert (stream.done.speculation.drafted_count > 0) is fixed
            sessions[fixed] = session
    assert {sessions[True], f"vectors of {sessions[True]}"} == set(connected)
    connected.clear()
    later = await caller.generate(sessions[False], TOKENS)
    assert connected == [sessions[False], f"vectors of {sessions[False]}"]
    assert later.token_ids == (await caller.generate(alone, TOKENS)).token_ids
    for session in (alone, *sessions.values()):
        await caller.close(session)

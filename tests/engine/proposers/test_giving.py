"""What of a history goes to a drafter of the verifier's weights, in pieces, and when nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.proposers import giving as giving_room
from kakeya_fleet.engine.proposers.giving import (
    FEW,
    FIRST_POSITIONS,
    MOST_PIECE_BYTES,
    Giving,
    HistoryGiver,
)
from tests.support.patience import PATIENCE_SECONDS

HISTORY = list(range(1000))
POSITION_BYTES = 8 * 1024


class Desk:
    """A verifier that has read `there` positions, and a drafter that takes them."""

    def __init__(self, there: int = 999) -> None:
        self.there = there
        self.read: list[tuple[int, int]] = []
        self.taken: list[int] = []
        self.pieces: list[int] = []
        self.taking = 0

    async def numbers(self, first: int, end: int) -> KeysValues | None:
        self.read.append((first, end))
        if end > self.there:
            return None
        halves = (end - first) * POSITION_BYTES // 8
        return (np.zeros(halves, np.float32), np.zeros(halves, np.float32))

    async def put(self, token_ids: Sequence[int], numbers: KeysValues) -> None:
        assert sum(each.nbytes for each in numbers) == len(token_ids) * POSITION_BYTES
        self.taking += 1
        assert self.taking == 1, "one at a time, in order"
        await asyncio.sleep(0)
        self.taking -= 1
        self.taken += token_ids
        self.pieces.append(len(token_ids))


async def test_all_but_the_last_token_goes_in_pieces_of_bounded_size() -> None:
    desk = Desk()
    await Giving(desk.numbers, 1000).give(HISTORY, 0, desk.put)
    assert desk.taken == HISTORY[:-1]
    assert desk.pieces[0] == FIRST_POSITIONS
    assert max(desk.pieces) * POSITION_BYTES == MOST_PIECE_BYTES
    assert len(desk.pieces) <= 3 + 1000 * POSITION_BYTES // MOST_PIECE_BYTES


async def test_only_what_is_not_known_goes() -> None:
    desk = Desk()
    await Giving(desk.numbers, 1000).give(HISTORY, 900, desk.put)
    assert desk.taken == HISTORY[900:-1]


@pytest.mark.parametrize(
    ("length", "known", "drafted", "due"),
    [
        pytest.param(1000, 999, 0, False, id="nothing unread"),
        pytest.param(1000, 999 - FEW, 0, False, id="few"),
        pytest.param(1000, 998 - FEW, 0, True, id="one more than few"),
        pytest.param(1000, 999 - FEW - 16, 16, False, id="its own draft"),
        pytest.param(1000, 998 - FEW - 16, 16, True, id="one more than its own draft"),
        pytest.param(1, 0, 0, False, id="one token"),
        pytest.param(0, 0, 0, False, id="none"),
        pytest.param(1001, 0, 0, False, id="too long"),
    ],
)
def test_what_the_next_forward_takes_in_is_not_given(
    length: int, known: int, drafted: int, due: bool
) -> None:
    assert Giving(Desk().numbers, 1000).is_due(length, known, drafted) is due


async def test_it_ends_where_the_verifier_has_no_more() -> None:
    desk = Desk(there=300)
    await Giving(desk.numbers, 1000).give(HISTORY, 0, desk.put)
    assert desk.taken == HISTORY[: len(desk.taken)]
    assert 300 - MOST_PIECE_BYTES // POSITION_BYTES < len(desk.taken) <= 300


async def test_a_drafter_that_fails_ends_it() -> None:
    desk = Desk()

    async def broken(_token_ids: Sequence[int], _numbers: KeysValues) -> None:
        raise DraftFailed(DraftFaultKind.UNREACHABLE, "gone")

    with pytest.raises(DraftFailed, match="gone"):
        await Giving(desk.numbers, 1000).give(HISTORY, 0, broken)
    assert len(desk.read) <= 2


async def test_a_caller_that_leaves_takes_the_piece_under_way_with_it() -> None:
    desk = Desk()
    began, ended = asyncio.Event(), asyncio.Event()

    async def stuck(_token_ids: Sequence[int], _numbers: KeysValues) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    giving = asyncio.create_task(Giving(desk.numbers, 1000).give(HISTORY, 0, stuck))
    await began.wait()
    giving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving
    assert ended.is_set()


async def test_a_draft_waits_a_moment_and_what_takes_longer_goes_on_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(giving_room, "WAIT_SECONDS", 0.01)
    desk, gate = Desk(), asyncio.Event()

    async def put(token_ids: Sequence[int], numbers: KeysValues) -> None:
        await gate.wait()
        await desk.put(token_ids, numbers)

    giver = HistoryGiver(Giving(desk.numbers, 1000))
    assert giver.gives(1000)
    assert not giver.gives(1001)
    assert not await giver.given(HISTORY[:900], 0, 8, put)
    monkeypatch.setattr(giving_room, "WAIT_SECONDS", 2 * PATIENCE_SECONDS)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert not await giver.given(HISTORY[:950], len(desk.taken), 8, put)
    gate.set()
    # What is committed until then goes behind it, before any draft.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await giver.given(HISTORY, len(desk.taken), 8, put):
            pass
    assert desk.taken == HISTORY[:-1]
    # Its own draft of eight, and few more, it takes in by itself.
    assert await giver.given([*HISTORY[:-16], *HISTORY[:16]], 999 - 8 - FEW, 8, put)
    assert desk.taken == HISTORY[:-1]


async def test_what_was_dropped_begins_anew_and_nobody_hears_of_its_end() -> None:
    desk, began = Desk(), asyncio.Event()

    async def stuck(_token_ids: Sequence[int], _numbers: KeysValues) -> None:
        began.set()
        await asyncio.Event().wait()

    giver = HistoryGiver(Giving(desk.numbers, 1000))
    waiting = asyncio.create_task(giver.given(HISTORY, 0, 8, stuck))
    await began.wait()
    waiting.cancel()
    await asyncio.wait((waiting,))
    giver.drop()
    assert await giver.given(HISTORY, 0, 8, desk.put)
    assert desk.taken == HISTORY[:-1]
    await giver.close()


async def test_a_fault_of_the_drafter_is_told_once() -> None:
    desk = Desk()

    async def broken(_token_ids: Sequence[int], _numbers: KeysValues) -> None:
        raise DraftFailed(DraftFaultKind.UNREACHABLE, "gone")

    giver = HistoryGiver(Giving(desk.numbers, 1000))
    with pytest.raises(DraftFailed, match="gone"):
        await giver.given(HISTORY, 0, 8, broken)
    assert await giver.given(HISTORY, 0, 8, desk.put)


async def test_who_gives_nothing_has_every_draft_asked_for() -> None:
    giver = HistoryGiver(None)
    assert not giver.gives(1)
    assert await giver.given(HISTORY, 0, 8, Desk().put)

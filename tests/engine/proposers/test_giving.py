"""What of a history goes to a drafter of the verifier's weights, in pieces, and when nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.proposers.giving import FEW, FIRST_POSITIONS, PIECE_BYTES, Giving

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
    await Giving(desk.numbers, 1000).give(HISTORY, 0, 0, desk.put)
    assert desk.taken == HISTORY[:-1]
    assert desk.pieces[0] == FIRST_POSITIONS
    assert max(desk.pieces) * POSITION_BYTES == PIECE_BYTES
    assert len(desk.pieces) <= 2 + 1000 * POSITION_BYTES // PIECE_BYTES


async def test_only_what_is_not_known_goes() -> None:
    desk = Desk()
    await Giving(desk.numbers, 1000).give(HISTORY, 900, 16, desk.put)
    assert desk.taken == HISTORY[900:-1]


@pytest.mark.parametrize(
    ("length", "known", "drafted"),
    [
        pytest.param(1000, 999, 0, id="nothing unread"),
        pytest.param(1000, 999 - FEW, 0, id="few"),
        pytest.param(1000, 999 - FEW - 16, 16, id="its own draft"),
        pytest.param(1, 0, 0, id="one token"),
        pytest.param(0, 0, 0, id="none"),
    ],
)
async def test_what_the_next_forward_takes_in_is_not_given(
    length: int, known: int, drafted: int
) -> None:
    desk = Desk()
    await Giving(desk.numbers, 1000).give(HISTORY[:length], known, drafted, desk.put)
    assert not desk.read


async def test_one_token_more_is() -> None:
    desk = Desk()
    await Giving(desk.numbers, 1000).give(HISTORY, 998 - FEW - 16, 16, desk.put)
    assert desk.taken == HISTORY[998 - FEW - 16 : -1]


async def test_nothing_is_given_of_a_history_that_is_too_long() -> None:
    desk = Desk()
    await Giving(desk.numbers, 999).give(HISTORY, 0, 0, desk.put)
    assert not desk.read


async def test_it_ends_where_the_verifier_has_no_more() -> None:
    desk = Desk(there=300)
    await Giving(desk.numbers, 1000).give(HISTORY, 0, 0, desk.put)
    assert desk.taken == HISTORY[: len(desk.taken)]
    assert 300 - PIECE_BYTES // POSITION_BYTES < len(desk.taken) <= 300


async def test_a_drafter_that_fails_ends_it() -> None:
    desk = Desk()

    async def broken(_token_ids: Sequence[int], _numbers: KeysValues) -> None:
        raise DraftFailed(DraftFaultKind.UNREACHABLE, "gone")

    with pytest.raises(DraftFailed, match="gone"):
        await Giving(desk.numbers, 1000).give(HISTORY, 0, 0, broken)
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

    giving = asyncio.create_task(Giving(desk.numbers, 1000).give(HISTORY, 0, 0, stuck))
    await began.wait()
    giving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving
    assert ended.is_set()

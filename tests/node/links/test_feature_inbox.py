"""Context vectors that arrive: taken, refused, waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from kakeya_fleet.node.links.features.feature_inbox import FEATURES, FeatureInbox
from kakeya_fleet.node.links.protocol.chunks import RefusedTensor, TensorFault
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor, from_floats

WIDTH = 4
FLOAT32, BFLOAT16, INT8 = TensorDtype.FLOAT32, TensorDtype.BFLOAT16, TensorDtype.INT8


def tensor(
    first: int, count: int, width: int = WIDTH, name: str = FEATURES, **fields: Any
) -> WireTensor:
    values = np.repeat(np.arange(first, first + count, dtype=np.float32)[:, None], width, axis=1)
    return from_floats(name, values, first_position=first, **fields)


def positions(inbox: FeatureInbox, first: int = 0, end: int = 10**9) -> list[int]:
    start, vectors = inbox.between(first, end)
    assert vectors[:, 0].tolist() == list(range(start, start + len(vectors)))
    return list(range(start, start + len(vectors)))


def test_deltas_overlaps_and_gaps() -> None:
    inbox = FeatureInbox(WIDTH)
    inbox.take(tensor(0, 3))
    inbox.take(tensor(3, 2, dtype=BFLOAT16))
    # Sent again by a side that does not know what arrived.
    inbox.take(tensor(0, 6))
    inbox.take(tensor(1, 2))
    inbox.take(tensor(6, 0))
    assert (positions(inbox), inbox.end) == ([0, 1, 2, 3, 4, 5], 6)
    assert positions(inbox, 2, 4) == [2, 3]
    assert positions(inbox, 4, 2) == []
    inbox.take(tensor(9, 2))
    assert positions(inbox) == [9, 10]


@pytest.mark.parametrize(
    ("refused", "fault"),
    [
        (tensor(0, 2, width=WIDTH + 1), TensorFault.WRONG_SHAPE),
        (tensor(0, 2, name="keys"), TensorFault.WRONG_SHAPE),
        (tensor(0, 17), TensorFault.WRONG_SHAPE),
        (WireTensor(FEATURES, INT8, (1, WIDTH), bytes(WIDTH)), TensorFault.WRONG_SHAPE),
        (
            WireTensor(FEATURES, FLOAT32, (WIDTH,), bytes(4 * WIDTH)),
            TensorFault.WRONG_SHAPE,
        ),
        (
            WireTensor(
                FEATURES, TensorDtype.FLOAT32, (1, WIDTH), bytes(4 * WIDTH), first_position=2**63
            ),
            TensorFault.WRONG_SHAPE,
        ),
        (
            from_floats(FEATURES, np.full((2, WIDTH), np.nan, np.float32), BFLOAT16),
            TensorFault.NOT_FINITE,
        ),
        (
            from_floats(FEATURES, np.full((1, WIDTH), -np.inf, np.float32), first_position=5),
            TensorFault.NOT_FINITE,
        ),
    ],
    ids=range(8),
)
def test_what_is_refused_changes_nothing(refused: WireTensor, fault: TensorFault) -> None:
    inbox = FeatureInbox(WIDTH, 16)
    inbox.take(tensor(0, 5))
    with pytest.raises(RefusedTensor) as caught:
        inbox.take(refused)
    assert caught.value.fault is fault
    assert positions(inbox) == [0, 1, 2, 3, 4]


async def test_vectors_on_their_way_are_waited_for() -> None:
    inbox = FeatureInbox(WIDTH)
    inbox.take(tensor(0, 2))
    assert await inbox.wait(2, 0.0)
    waiting = [asyncio.create_task(inbox.wait(end, 10.0)) for end in (3, 5, 5)]
    await asyncio.sleep(0)
    inbox.take(tensor(2, 1))
    assert await waiting[0]
    assert not waiting[1].done()
    inbox.take(tensor(3, 4))
    assert await asyncio.gather(*waiting[1:]) == [True, True]
    assert not await inbox.wait(8, 0.01)

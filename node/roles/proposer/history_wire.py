"""Keys and values of a history, as a draft stream carries them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kakeya.v1 import proposer_pb2 as wire
from kakeya_fleet.engine.contracts.raw_numbers import FORMATS, KeysValues
from kakeya_fleet.engine.errors import BadParameters


def history_to_wire(
    block_id: int, base_length: int, token_ids: Sequence[int], numbers: KeysValues
) -> wire.DraftHistory:
    """The message of tokens that end at `base_length`."""
    return wire.DraftHistory(
        block_id=block_id,
        committed_token_ids=token_ids,
        base_length=base_length,
        keys_values=[each.tobytes() for each in numbers],
        dtype="bfloat16" if numbers[0].dtype == np.uint16 else "float32",
    )


def numbers_of(history: wire.DraftHistory) -> KeysValues:
    """Its numbers, flat and read only. Raises `BadParameters` for what are none."""
    code = FORMATS.get(history.dtype)
    if code is None:
        raise BadParameters(
            f"dtype is {history.dtype!r}; it must be one of {', '.join(FORMATS)}", field="dtype"
        )
    size = np.dtype(code).itemsize
    if any(len(each) % size for each in history.keys_values):
        raise BadParameters(
            f"keys_values are not whole numbers of {size} bytes", field="keys_values"
        )
    return tuple(np.frombuffer(each, code) for each in history.keys_values)

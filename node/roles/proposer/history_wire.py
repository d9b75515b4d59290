"""Keys and values of a history, as a draft stream carries them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kakeya.v1 import proposer_pb2 as wire
from kakeya_fleet.engine.contracts.raw_numbers import FORMATS, KeysValues
from kakeya_fleet.engine.errors import BadParameters


def history_to_wire(
    block_id: int, base_length: int, token_ids: Sequence[int], numbers: KeysValues
) -> wire.DraftRequest:
    """The message of tokens that end at `base_length`."""
    # Each part is made where it stays: a message that is put into another is copied, and this one
    # has megabytes.
    request = wire.DraftRequest()
    history = request.history
    history.block_id, history.base_length = block_id, base_length
    history.committed_token_ids.extend(token_ids)
    history.keys_values.extend(each.tobytes() for each in numbers)
    history.dtype = "bfloat16" if numbers[0].dtype == np.uint16 else "float32"
    return request


def numbers_of(history: wire.DraftHistory) -> KeysValues:
    """Its numbers, flat and read only. Raises `BadParameters` for what are none."""
    code = FORMATS.get(history.dtype)
    if code is None:
        raise BadParameters(
            f"dtype is {history.dtype!r}; it must be one of {', '.join(FORMATS)}", field="dtype"
        )
    size = np.dtype(code).itemsize
    # A message copies what is looked at, each time.
    given = list(history.keys_values)
    if any(len(each) % size for each in given):
        raise BadParameters(
            f"keys_values are not whole numbers of {size} bytes", field="keys_values"
        )
    return tuple(np.frombuffer(each, code) for each in given)

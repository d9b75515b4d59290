"""Counter-based randomness: one number for each (seed, position).

Philox-4x64-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as
easy as 1, 2, 3" (SC 2011), which has no state to advance: the number of a
position does not depend on which positions were asked for before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kakeya_fleet.engine.errors import BadParameters

SEED_BITS = 64
_MANTISSA_BITS = 53
_WORDS = 4
_BLOCK = 64
"""Positions whose numbers are made together: that takes as long as to make one."""
_BLOCKS_KEPT = 64


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) with 53 random bits, the same for the same arguments.

    Key = `seed`, counter = `position`, first of the block's four words. Raises
    `BadParameters` unless 0 <= seed < 2**64 and position >= 0.
    """
    check_seed(seed)
    if position < 0:
        raise BadParameters(f"position {position} is negative", field="position")
    block, at = divmod(position, _BLOCK)
    return _numbers(seed, block)[at]


@lru_cache(maxsize=_BLOCKS_KEPT)
def _numbers(seed: int, block: int) -> tuple[float, ...]:
    """Those of a block of positions."""
    words = np.random.Philox(key=seed, counter=block * _BLOCK).random_raw(_WORDS * _BLOCK)
    upper = words[::_WORDS] >> np.uint64(SEED_BITS - _MANTISSA_BITS)
    return tuple((upper * 2.0**-_MANTISSA_BITS).tolist())


def check_seed(seed: int) -> None:
    """Raises `BadParameters` unless 0 <= seed < 2**64."""
    if not 0 <= seed < 2**SEED_BITS:
        raise BadParameters(f"seed {seed} is not between 0 and 2**64 - 1", field="seed")


def draw_seed(entropy: Callable[[int], bytes]) -> int:
    """A seed from `entropy(byte_count)`, for instance `os.urandom`; never 0.

    0 stands for "greedy, no seed" in reports.
    """
    return int.from_bytes(entropy(SEED_BITS // 8), "big") or 1

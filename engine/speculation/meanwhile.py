"""Tokens that a verifier decides while a draft from another machine is on its way.

Who waits for another machine has its own to itself: it decodes alone meanwhile, each token the
verifier's own as ever. A draft that comes is behind where it was asked. Of one that agrees with
what was decoded since, what is left is verified; of one that does not, nothing is lost but the
forward that it would have taken less of. On one machine both would have the same processors, and
the same memory to read from: there the draft is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What was decoded while a draft was on its way, in `seconds`.

    The draft's first `agreed_count` tokens are among the `token_count`, and `dropped_count` are of
    no use since one before them differs.
    """

    token_count: int = 0
    seconds: float = 0.0
    agreed_count: int = 0
    dropped_count: int = 0


NOTHING = Meanwhile()


def caught_up(
    drafted: Sequence[int], decoded: Sequence[int], seconds: float
) -> tuple[tuple[int, ...], Meanwhile]:
    """What is left of a draft behind what was `decoded` since it was asked for."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(drafted, decoded, strict=False))
    agreed = sum(1 for _ in pairs)
    if agreed < min(len(drafted), len(decoded)):
        return (), Meanwhile(len(decoded), seconds, agreed, len(drafted) - agreed)
    return tuple(drafted[len(decoded) :]), Meanwhile(len(decoded), seconds, agreed)

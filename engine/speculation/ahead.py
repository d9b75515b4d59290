"""Whether a draft made ahead still fits.

At history length L0 a block A goes to the verifier. While it is verified the
proposer, assuming that all of A will be accepted, drafts D behind it: the two
predict the tokens A + D from L0 on. They ask for one token more than a block,
since D's first token stands for the verifier's bonus token.
"""

from __future__ import annotations

from collections.abc import Sequence


def may_fit(assumed: Sequence[int], committed_since: Sequence[int]) -> bool:
    """Whether a draft behind `assumed` can still fit, before it is known."""
    shared = min(len(assumed), len(committed_since))
    return list(assumed[:shared]) == list(committed_since[:shared])


def usable_suffix(
    predicted: Sequence[int], committed_since: Sequence[int]
) -> tuple[int, ...] | None:
    """What is left of `predicted` (A + D) after `committed_since`, both from L0 on.

    None when they differ or when nothing is left.
    """
    count = len(committed_since)
    if len(predicted) <= count or list(predicted[:count]) != list(committed_since):
        return None
    return tuple(predicted[count:])

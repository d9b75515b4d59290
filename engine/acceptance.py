"""Which drafted tokens are accepted, and which tokens a verify forward commits."""

from __future__ import annotations

from collections.abc import Sequence

from engine.sampling import SamplingParameters, choose_token
from engine.verifier import Logits


def accepted_prefix(draft: Sequence[int], chosen: Sequence[int]) -> int:
    """How many tokens at the start of `draft` equal the verifier's choices."""
    count = 0
    for drafted, own in zip(draft, chosen, strict=False):
        if drafted != own:
            break
        count += 1
    return count


def decide(
    logits: Logits, draft: Sequence[int], parameters: SamplingParameters, first_position: int
) -> list[int]:
    """The tokens that one forward over [last token] + `draft` commits, 1 to n + 1.

    `logits` is [n + 1, vocabulary] for n drafted tokens; row i decides index
    `first_position` + i. Accepted tokens, then one of the verifier's own: the
    correction of the first mismatch or, when all were accepted, the bonus. Rows
    behind a mismatch continue a history that is not, and are not looked at.
    """
    chosen: list[int] = []
    for offset, row in enumerate(logits):
        chosen.append(choose_token(row, parameters, first_position + offset))
        if offset < len(draft) and draft[offset] != chosen[offset]:
            break
    return chosen

"""Which drafted tokens are accepted, and which tokens a verify forward commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.errors import BadParameters, GrammarRefused, InvariantViolated
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import SamplingParameters, choose_token
from kakeya_fleet.engine.sampling.log_probabilities import log_probability_of
from kakeya_fleet.engine.sessions.history import History


@dataclass(frozen=True, slots=True)
class Choice:
    """The verifier's own token for one position.

    `log_probability` of `token_id` and `alternatives`, pairs of token id and
    log-probability, the most probable first, are as `engine.sampling.log_probabilities`
    defines them; None and empty unless `top_log_probabilities` asks for them.
    """

    token_id: int
    log_probability: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


def accepted_prefix(draft: Sequence[int], chosen: Sequence[int]) -> int:
    """How many tokens at the start of `draft` equal the verifier's choices."""
    count = 0
    for drafted, own in zip(draft, chosen, strict=False):
        if drafted != own:
            break
        count += 1
    return count


def decide(
    logits: Logits,
    draft: Sequence[int],
    parameters: SamplingParameters,
    history: History,
    answer: Answer | None = None,
    stop_ids: frozenset[int] = frozenset(),
) -> list[Choice]:
    """What one forward over [last token] + `draft` commits, 1 to n + 1 choices.

    `logits` is [n + 1, vocabulary] for n drafted tokens; row i decides index
    len(`history`) + i, and the choices before it count as history for it.
    Accepted tokens, then one of the verifier's own: the correction of the first
    mismatch or, when all were accepted, the bonus. Rows behind a mismatch
    continue a history that is not, and are not looked at. Nor are those behind a stop id, and
    behind a token with which `answer`, what the generation has said, is complete. `history` and
    `answer` stay as they are. Costs O(block) beside the rows themselves, whatever the
    history's length.

    Raises as `choose_token` for the first row. A later one that has no choice ends
    the choices before it, as many as are accepted: a draft takes back none of the
    tokens that come without it, and the next forward begins with that row.
    """
    seen = None
    if parameters.penalises_repetition:
        # A copy: what is chosen here is not committed yet.
        seen = history.seen(logits.shape[1]).copy()
    choices: list[Choice] = []
    taken: list[int] = []
    try:
        for offset, row in enumerate(logits):
            try:
                token = choose_token(row, parameters, len(history) + offset, seen, answer)
            except (BadParameters, GrammarRefused, InvariantViolated):
                if not choices:
                    raise
                break
            choices.append(_choice(row, token, parameters))
            if token in stop_ids:
                break
            if offset < len(draft) and draft[offset] != token:
                break
            if seen is not None:
                seen[token] = True
            if answer is not None and offset < len(draft):
                taken.append(token)
                answer.take((token,))
                if answer.is_complete:
                    break
    finally:
        if answer is not None:
            answer.take_back(taken)
    return choices


def _choice(row: Logits, token_id: int, parameters: SamplingParameters) -> Choice:
    """With what is asked for of its log-probability."""
    if parameters.top_log_probabilities is None:
        return Choice(token_id)
    return Choice(token_id, *log_probability_of(row, token_id, parameters.top_log_probabilities))

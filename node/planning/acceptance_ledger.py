"""How often a verifier took a proposer's tokens, by pair of models."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.placement import MeasuredAcceptance

# Drafted tokens after which the weight of what was measured has halved: a few
# generations, so that the figure follows the kind of text being written.
HALF_LIFE_TOKENS = 2048.0
# A pair that nobody tried for this long is unknown again: otherwise one bad
# hour would keep the planner from ever measuring it anew.
KEPT_SECONDS = 900.0


@dataclass(slots=True)
class _Entry:
    accepted_weight: float = 0.0
    tried_weight: float = 0.0
    drafted_count: int = 0
    measured_at: float = 0.0


class AcceptanceLedger:
    """Exponentially weighted acceptance rate of each (verifier, proposer) pair.

    rate = sum(w_i * accepted_i) / sum(w_i * tried_i) over blocks i, where
    tried tokens are those compared with the verifier's choice (none behind a
    mismatch is), and a weight w_i halves with every `half_life_tokens` drafted
    after it. Times are the caller's monotonic seconds.
    """

    def __init__(self, half_life_tokens: float = HALF_LIFE_TOKENS) -> None:
        self._half_life_tokens = half_life_tokens
        self._entries: dict[tuple[str, str], _Entry] = {}

    def record(
        self,
        pair: tuple[str, str],
        *,
        drafted_count: int,
        tried_count: int,
        accepted_count: int,
        now: float,
    ) -> None:
        """Adds one block of (verifier model, proposer model)."""
        if tried_count <= 0:
            return
        entry = self._entries.setdefault(pair, _Entry())
        kept = 0.5 ** (drafted_count / self._half_life_tokens)
        entry.accepted_weight = entry.accepted_weight * kept + accepted_count
        entry.tried_weight = entry.tried_weight * kept + tried_count
        entry.drafted_count += drafted_count
        entry.measured_at = now

    def rates(self, now: float) -> dict[tuple[str, str], MeasuredAcceptance]:
        """What is known of each pair; pairs not tried for 15 minutes are forgotten."""
        self._entries = {
            pair: entry
            for pair, entry in self._entries.items()
            if now - entry.measured_at < KEPT_SECONDS
        }
        return {
            pair: MeasuredAcceptance(
                entry.accepted_weight / entry.tried_weight, entry.drafted_count
            )
            for pair, entry in self._entries.items()
        }

"""How often a verifier took a proposer's tokens, by pair of models and by session."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance
from kakeya_fleet.fleet.placement.session_acceptance import SessionAcceptance, over_sessions

# Drafted tokens after which the weight of what one session measured has halved: a few
# generations, so that the figure follows the kind of text being written.
HALF_LIFE_TOKENS = 2048.0
# Sessions of a pair that are kept, the latest: a day's work of one person, not a month's.
RECENT_SESSIONS = 32
# A pair that nobody tried for this long is unknown again: otherwise one bad
# hour would keep the planner from ever measuring it anew.
KEPT_SECONDS = 900.0

Pair = tuple[str, str]
"""Verifier model and proposer model."""


class AcceptanceLedger:
    """Acceptance of each (verifier, proposer) pair over its recent sessions.

    Within one session rate = sum(w_i * accepted_i) / sum(w_i * tried_i) over blocks i,
    where tried tokens are those compared with the verifier's choice (none behind a
    mismatch is), and a weight w_i halves with every `half_life_tokens` drafted
    after it. `fleet.placement.session_acceptance` puts the sessions together. Times are the
    caller's monotonic seconds.
    """

    def __init__(self, half_life_tokens: float = HALF_LIFE_TOKENS) -> None:
        self._half_life_tokens = half_life_tokens
        self._sessions: dict[Pair, OrderedDict[str, SessionAcceptance]] = {}
        self._measured_at: dict[Pair, float] = {}

    def record(
        self,
        pair: Pair,
        session_id: str,
        *,
        drafted_count: int,
        tried_count: int,
        accepted_count: int,
        now: float,
    ) -> None:
        """Adds one block, of text that does not repeat itself."""
        if tried_count <= 0:
            return
        sessions = self._sessions.setdefault(pair, OrderedDict())
        before = sessions.get(session_id, SessionAcceptance())
        kept = 0.5 ** (drafted_count / self._half_life_tokens)
        sessions[session_id] = replace(
            before,
            drafted_count=before.drafted_count + drafted_count,
            tried=before.tried * kept + tried_count,
            accepted=before.accepted * kept + accepted_count,
        )
        sessions.move_to_end(session_id)
        if len(sessions) > RECENT_SESSIONS:
            sessions.popitem(last=False)
        self._measured_at[pair] = now

    def rates(self, now: float) -> dict[Pair, MeasuredAcceptance]:
        """What is known of each pair; pairs not tried for 15 minutes are forgotten."""
        for pair, measured_at in list(self._measured_at.items()):
            if now - measured_at >= KEPT_SECONDS:
                del self._measured_at[pair], self._sessions[pair]
        return {
            pair: over_sessions(tuple(sessions.values()))
            for pair, sessions in self._sessions.items()
        }

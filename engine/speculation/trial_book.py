"""What trials of proposers came to in the latest sessions, so that the next one pays for few.

A session that begins knows nothing of its text, and finds out by drafts who is fast on it. That
costs it some tokens' time (`engine.speculation.contest`), which a short answer seldom earns back.
So sessions tell each other. Of a proposer that was faster in w of them and slower in l, both
decayed, a next session is suited with probability

    p = (w + 1/2) / (w + l + 1)                 (Jeffreys' prior)

and with a hope of h times as fast as decoding alone, where what the session does now is expected
to be g times as fast, that saves s = 1/g - 1/h of a token's time each token at most; s of
(1 - 1/h) / 4 at least, since g may be less on this text. Before it is tried it reads the session's
history of m tokens: where it shares a machine with the verifier, or is given features, that slows
the blocks beside it, by the time of o tokens for each that it reads. A trial is worth that, its
`TRIAL_TOKENS`, and the block with which they are found lost, in a session of at least

    n = (o m + TRIAL_TOKENS + 1) / (p s)      tokens.

Where sessions are shorter by mean, it waits until a session has made so many blocks, which are
tokens where none is drafted. One that a plan lets lead rests for them, as if it had been dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.speculation.contest import TRIAL_TOKENS

DECAY = 0.98
"""Of what was counted, with each session: of some fifty. What suits none of them is tried in one
of five all the same, where sessions are of a hundred tokens."""
KEPT_SECONDS = 900.0
"""As long as acceptance that was measured is kept: it is what texts were like of late."""
LEAST_SAVED = 0.25
"""Of what is saved beside decoding alone, beside a leader that is expected to be as fast."""
UNKNOWN_SESSIONS = 4
"""Before so many, nobody knows how long sessions are."""


@dataclass(frozen=True, slots=True)
class _Record:
    """Sessions in which it was faster and slower, decayed, and when that was told last.

    In those in which it was opened for a trial that cost `opening_tokens`, while it read
    `read_tokens`; both decayed too.
    """

    faster: float = 0.0
    slower: float = 0.0
    at: float = 0.0
    opening_tokens: float = 0.0
    read_tokens: float = 0.0

    def decayed(self) -> _Record:
        """As a session later."""
        return replace(
            self,
            faster=self.faster * DECAY,
            slower=self.slower * DECAY,
            opening_tokens=self.opening_tokens * DECAY,
            read_tokens=self.read_tokens * DECAY,
        )


class TrialBook:
    """Of one verifier and one kind of text. One thread's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._sessions = 0.0
        self._tokens = 0.0
        self._records: dict[ProposerKey, _Record] = {}

    def session_begun(self) -> None:
        """One more has its text before it."""
        self._sessions = self._sessions * DECAY + 1.0
        self._tokens *= DECAY
        now = self._clock()
        self._records = {
            key: each.decayed()
            for key, each in self._records.items()
            if now - each.at < KEPT_SECONDS
        }

    def tokens_made(self, count: int) -> None:
        """A session has made so many more, with or without a draft."""
        self._tokens += count

    def lost(self, proposer: ProposerKey) -> None:
        """In a session it was slower than what that did before."""
        self._add(proposer, slower=1.0)

    def won(self, proposer: ProposerKey) -> None:
        """In a session it was faster by what wins a trial."""
        self._add(proposer, faster=1.0)

    def opened(self, proposer: ProposerKey, lost_tokens: float, read_tokens: int) -> None:
        """To be tried it read so many, which cost the stream the time of `lost_tokens`."""
        before = self._records.get(proposer, _Record())
        self._records[proposer] = replace(
            before,
            opening_tokens=before.opening_tokens + max(0.0, lost_tokens),
            read_tokens=before.read_tokens + read_tokens,
            at=self._clock(),
        )

    def rest_blocks(
        self, proposer: ProposerKey, hope: float, gain: float = 1.0, history_tokens: int = 0
    ) -> int:
        """How many blocks a session that begins makes before it is worth trying.

        `hope` is how many times as fast as decoding alone it may be at best, and `gain` how many
        times as fast the session is expected to be without it. It would read `history_tokens`.
        """
        found = self._records.get(proposer)
        if found is None or hope <= 1.0:
            return 0
        suited = (found.faster + 0.5) / (found.faster + found.slower + 1.0)
        saved = max(1.0 / gain - 1.0 / hope, LEAST_SAVED * (1.0 - 1.0 / hope))
        opening = found.opening_tokens / found.read_tokens if found.read_tokens else 0.0
        needed = (opening * history_tokens + TRIAL_TOKENS + 1.0) / (suited * saved)
        is_known = self._sessions >= UNKNOWN_SESSIONS
        return int(needed) if is_known and needed > self._tokens / self._sessions else 0

    def _add(self, proposer: ProposerKey, *, faster: float = 0.0, slower: float = 0.0) -> None:
        before = self._records.get(proposer, _Record())
        self._records[proposer] = replace(
            before,
            faster=before.faster + faster,
            slower=before.slower + slower,
            at=self._clock(),
        )


class TrialBooks:
    """A book for each verifier's model and each kind of text: drawn at a temperature, or greedy."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._books: dict[tuple[str, bool], TrialBook] = {}

    def of(self, verifier: str, *, sampled: bool) -> TrialBook:
        """The one of a verifier's model."""
        return self._books.setdefault((verifier, sampled), TrialBook(self._clock))

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

That says what a trial may win. What all have lost is bounded besides: of each proposer the book
keeps what its blocks have gained over decoding alone, won or lost, less what its openings cost.
Who gained is tried by the rule above. Those who lost so far, L tokens' time together, share what
is left of

    FREE_TOKENS + LOST_SHARE N - L

with N tokens made in these sessions, with or without drafts: a trial of one of them, or of one of
which nothing is known, begins when its expected loss, (1 - p) (o m + TRIAL_TOKENS + 1), fits. So
where texts suit nobody, sessions are slower than decoding alone by `LOST_SHARE` in the long run,
whatever opening costs; and who suits one text in six earns there what the other five lose.
"""

from __future__ import annotations

import math
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
FREE_TOKENS = 2.0 * TRIAL_TOKENS
"""That trials may lose before any token is made."""
LOST_SHARE = 0.03
"""Of the tokens that are made: trials may lose so many. What no sum knows, as what one that a
plan lets lead slows by being opened, has to fit into the twentieth that drafts may cost."""
HISTORY_TOKENS = 1024
"""Histories of fewer tokens are of one kind, and beyond, those up to each power of two."""


@dataclass(frozen=True, slots=True)
class _Record:
    """Sessions in which it was faster and slower, decayed, and when anything of it was told last.

    In those in which it was opened for a trial that cost `opening_tokens`, while it read
    `read_tokens`. In all it has made `gained` tokens more than decoding alone in the time that
    took; less than none for fewer. All are decayed.
    """

    faster: float = 0.0
    slower: float = 0.0
    at: float = 0.0
    opening_tokens: float = 0.0
    read_tokens: float = 0.0
    gained: float = 0.0

    @property
    def suited(self) -> float:
        """With what probability it is faster on the next text."""
        return (self.faster + 0.5) / (self.faster + self.slower + 1.0)

    def trial_tokens(self, history_tokens: int) -> float:
        """What a trial costs that is found lost, behind so many."""
        opening = self.opening_tokens / self.read_tokens if self.read_tokens else 0.0
        return opening * history_tokens + TRIAL_TOKENS + 1.0

    def decayed(self) -> _Record:
        """As a session later."""
        return replace(
            self,
            faster=self.faster * DECAY,
            slower=self.slower * DECAY,
            opening_tokens=self.opening_tokens * DECAY,
            read_tokens=self.read_tokens * DECAY,
            gained=self.gained * DECAY,
        )


class TrialBook:
    """Of one verifier and one kind of session. One thread's."""

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
        """To be tried it read so many, which cost the stream the time of `lost_tokens`.

        It has `gained` so many less already: where a stream ends meanwhile this is never told.
        """
        before = self._records.get(proposer, _Record())
        self._records[proposer] = replace(
            before,
            opening_tokens=before.opening_tokens + max(0.0, lost_tokens),
            read_tokens=before.read_tokens + read_tokens,
            at=self._clock(),
        )

    def gained(self, proposer: ProposerKey, tokens: float) -> None:
        """It made so many more than decoding alone; less than none for fewer."""
        before = self._records.get(proposer, _Record())
        self._records[proposer] = replace(before, gained=before.gained + tokens, at=self._clock())

    def owed_blocks(self, proposer: ProposerKey, history_tokens: int = 0) -> int:
        """How many tokens are to be made before what a trial of it may lose is there to lose."""
        found = self._records.get(proposer, _Record())
        if found.gained > 0.0:
            return 0
        lost = sum(max(0.0, -each.gained) for each in self._records.values())
        cost = (1.0 - found.suited) * found.trial_tokens(history_tokens)
        missing = lost + cost - FREE_TOKENS - LOST_SHARE * self._tokens
        return max(0, math.ceil(missing / LOST_SHARE))

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
        saved = max(1.0 / gain - 1.0 / hope, LEAST_SAVED * (1.0 - 1.0 / hope))
        needed = found.trial_tokens(history_tokens) / (found.suited * saved)
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
    """A book for each verifier's model and each kind of session.

    Text drawn at a temperature is another matter than greedy, and so are drafts behind a long
    history: they cost more, as does opening.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._books: dict[tuple[str, bool, int], TrialBook] = {}

    def of(self, verifier: str, *, sampled: bool, history_tokens: int = 0) -> TrialBook:
        """The one of a verifier's model, for sessions that begin behind so many."""
        kind = verifier, sampled, kind_of_length(history_tokens)
        return self._books.setdefault(kind, TrialBook(self._clock))


def kind_of_length(history_tokens: int) -> int:
    """The same for histories that are about as long."""
    return (history_tokens // HISTORY_TOKENS).bit_length()

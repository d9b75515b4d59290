"""When a generation that comes now would have its first token, at the least.

It needs a turn for each chunk of its history that is not computed yet, and one more. A turn that
comes while n others wait, of which b share a forward of s seconds, is run in

    s (n // b + 1)

seconds or later: those that wait are served before, and nobody twice before somebody once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# Share of the old mean that a forward leaves, about the last five.
DECAY = 0.8


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Turns that wait for a model's thread, and how it worked through the latest of them.

    `turns_a_batch` shared each of the latest forwards, which took `batch_seconds`, on average; 0
    before the first.
    """

    waiting_turns: int = 0
    turns_a_batch: float = 0.0
    batch_seconds: float = 0.0

    def after_batch(self, turns: int, seconds: float) -> QueueLoad:
        """A forward ran so many turns."""
        if not turns:
            return self
        if not self.turns_a_batch:
            return replace(self, turns_a_batch=float(turns), batch_seconds=seconds)
        return replace(
            self,
            turns_a_batch=DECAY * self.turns_a_batch + (1.0 - DECAY) * turns,
            batch_seconds=DECAY * self.batch_seconds + (1.0 - DECAY) * seconds,
        )

    def turn_seconds(self) -> float:
        """Seconds until a turn that comes now has been run; 0 while nothing waits or is known."""
        if not self.waiting_turns or self.turns_a_batch < 1.0:
            return 0.0
        return self.batch_seconds * (self.waiting_turns // self.turns_a_batch + 1)

    def first_token_seconds(self, pending_tokens: int, chunk: int) -> float:
        """Seconds until the first token of a history with so many tokens to compute."""
        turns = -(-pending_tokens // max(1, chunk)) + 1
        return turns * self.turn_seconds()

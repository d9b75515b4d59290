"""What one verify forward committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.sessions.acceptance import Choice


@dataclass(frozen=True, slots=True)
class Step:
    """What one verify forward committed.

    `choices` are those of 1 or more tokens from `first_index` of the history
    on, the first `accepted_count` of them drafted, the one after them, if there
    is one, the verifier's own. `verified_count` drafted tokens went into the forward;
    `forbidden_count` more were cut off, the first of which the grammar forbids.
    `forced_count` tokens were known before the forward: the grammar allowed no other.
    `stopped` says that the last committed token is a stop id, `complete` that the grammar
    allows nothing behind it.
    """

    choices: tuple[Choice, ...]
    first_index: int
    verified_count: int
    accepted_count: int
    stopped: bool
    complete: bool = False
    forbidden_count: int = 0
    forced_count: int = 0

    @property
    def ends(self) -> bool:
        """Whether the generation ends with it."""
        return self.stopped or self.complete

    @property
    def drafted_count(self) -> int:
        """Drafted tokens that were verified, or need not be: no choice can equal them."""
        return self.verified_count + self.forbidden_count

    @property
    def committed(self) -> tuple[int, ...]:
        """The ids of `choices`."""
        return tuple(choice.token_id for choice in self.choices)


def until_stop(
    choices: Sequence[Choice], stop_ids: frozenset[int]
) -> tuple[tuple[Choice, ...], bool]:
    """The choices up to the first stop id, that one included, and whether there is one."""
    for index, choice in enumerate(choices):
        if choice.token_id in stop_ids:
            return tuple(choices[: index + 1]), True
    return tuple(choices), False

"""Deadlines of a client. Every call has one."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kakeya import ranges


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines, in seconds. Raises BadRequest for what is no number from 0 on.

    A call that passes its deadline is cancelled on the node too and raises
    `DeadlineExceeded`, or `NodeUnreachable` when no connection came about.
    """

    connect: float = 5.0
    """To connect, before a call on a channel that is not connected. A refused
    connection fails at once."""

    unary: float = 10.0
    """For one call that computes nothing large: create without first tokens, info, fork,
    close, plan."""

    leave: float = 2.0
    """For the close that ends a session's context manager. A session that is not
    closed in time is evicted by its node after its idle time."""

    append_base: float = 30.0
    """For an append, and for a create with first tokens, besides `append_per_token`: it
    may wait for the session's earlier operations, or other sessions' turns."""

    append_per_token: float = 0.1
    """For each appended token, and for each that a fork or a rewind left to compute:
    deadline = append_base + tokens * append_per_token."""

    first_tokens: float = 120.0
    """From the request of a generation to its first tokens: earlier operations
    of the session, then `append_per_token` for each token not computed yet."""

    stream_idle: float = 30.0
    """Between two messages of a generation."""

    generation: float = 86_400.0
    """For a whole generation. With `deadline_seconds` it is deadline_seconds +
    stream_idle where that is less, because the node ends such a generation."""

    resume: float = 60.0
    """For a session with `resume` whose node left, or is lost, while no other can go on: so
    long it waits for one that can, its own among them, as after an upgrade. A generation with
    `deadline_seconds` waits no longer than those. 0 waits for nobody."""

    watch: float = 86_400.0
    """For one watch of the fleet; watch again after it."""

    def __post_init__(self) -> None:
        for each in fields(self):
            ranges.number(
                f"timeouts.{each.name}", getattr(self, each.name), 0, ranges.LONGEST_SECONDS
            )

    def append(self, token_count: int) -> float:
        """Deadline of a call that computes the keys and values of so many tokens, in seconds."""
        return self.append_base + token_count * self.append_per_token

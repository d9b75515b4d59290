"""The contract of the way from a group's leader to one of its ranks."""

from __future__ import annotations

from typing import Protocol

from kakeya_fleet.engine.group.messages import Message


class RankLost(Exception):
    """The rank has died, is silent, or says what makes no sense; the message is for people."""


class RankChannel(Protocol):
    """Messages to and from one rank, in order. Used by one thread at a time."""

    @property
    def rank(self) -> int:
        """Its number, from 0."""
        ...

    def send(self, message: Message) -> None:
        """Hands over a command. Raises `RankLost`."""
        ...

    def receive(self, *, seconds: float) -> Message:
        """The next answer. Raises `RankLost`, also when it is late."""
        ...

"""The leader's end of a group: one command at a time, to every rank, with one answer of all."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_fleet.engine.errors import GroupLost
from kakeya_fleet.engine.group.channel import RankChannel, RankLost
from kakeya_fleet.engine.group.commands import Command
from kakeya_fleet.engine.group.fields import Header, Json, MalformedMessage, integer, section
from kakeya_fleet.engine.group.messages import Message
from kakeya_fleet.engine.group.values import error_from_header


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of all ranks, rank 0 first, and the notes that went before the command."""

    messages: list[Message]
    notes: list[Json]

    @property
    def first(self) -> Message:
        """Rank 0's."""
        return self.messages[0]


class Conversation:
    """Commands to the ranks, in one order. Any thread may note something or end it.

    The first fault ends it for ever: from then on every command raises `GroupLost`.
    """

    def __init__(self, channels: Sequence[RankChannel], *, answer_seconds: float) -> None:
        """`channels` to every rank, rank 0 first. No answer may take longer than given."""
        if [channel.rank for channel in channels] != list(range(len(channels))):
            raise ValueError("the channels are to ranks 0 onwards, in this order")
        self._channels = tuple(channels)
        self._answer_seconds = answer_seconds
        self._busy = threading.Lock()
        self._noting = threading.Lock()
        self._notes: list[Json] = []
        self._lost = ""

    @property
    def rank_count(self) -> int:
        """Ranks of the group."""
        return len(self._channels)

    @property
    def lost(self) -> str:
        """Why the group is lost, a sentence; empty while it is not."""
        return self._lost

    def wait_for_answers(self, seconds: float) -> None:
        """From the next command on no answer may take longer."""
        self._answer_seconds = seconds

    def end(self, reason: str) -> None:
        """No more commands; the first reason stays. Does not interrupt one under way."""
        with self._noting:
            self._lost = self._lost or reason

    def note(self, note: Json) -> None:
        """Sends `note` along with the next command. Any thread may call."""
        with self._noting:
            if not self._lost:
                self._notes.append(note)

    def ask(self, command: Command, /, **arguments: Json) -> Answers:
        """Every rank's answer to a command that all ran alike.

        When they refused it rank 0's has the key `error`; see `refusal`. Raises
        `GroupLost` when one is lost, or ran another way.
        """
        with self._busy:
            self.check()
            with self._noting:
                notes, self._notes = self._notes, []
            message = Message({"do": command.value, "before": notes, **arguments})
            try:
                return Answers(self._answers(message), notes)
            except (RankLost, MalformedMessage) as error:
                self.end(str(error))
                raise self._error() from error
            except BaseException as error:
                # Some ranks may have the command, and its notes, and others not.
                self.end(f"a command was broken off ({error!r})")
                raise

    @contextmanager
    def making_sense(self) -> Iterator[None]:
        """Where rank 0's answer is read: the group is lost when it is none that a rank gives."""
        try:
            yield
        except (MalformedMessage, LookupError, ValueError) as error:
            self.end(f"rank 0 says what makes no sense: {error}")
            raise self._error() from error

    def check(self) -> None:
        """Raises `GroupLost` once the group is lost."""
        if self._lost:
            raise self._error()

    def _answers(self, message: Message) -> list[Message]:
        for channel in self._channels:
            channel.send(message)
        answers = [channel.receive(seconds=self._answer_seconds) for channel in self._channels]
        checksums = [integer(answer.header, "checksum") for answer in answers]
        for rank, checksum in enumerate(checksums):
            if checksum != checksums[0]:
                raise RankLost(f"rank {rank} is in another state than rank 0")
        return answers

    def _error(self) -> GroupLost:
        return GroupLost(
            f"the group of {len(self._channels)} ranks that served the verifier is lost:"
            f" {self._lost}; resume the session from its tokens, here later or on another node"
        )


def refusal(answer: Message) -> Exception | None:
    """The error with which the ranks refused a command; None when they ran it.

    Raises `MalformedMessage`.
    """
    header: Header = answer.header
    if header.get("error") is None:
        return None
    return error_from_header(section(header, "error"))

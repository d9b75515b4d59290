"""A group's ranks as they come: two proven connections of each, then their part of the model."""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.errors import EngineError, ModelUnusable
from engine.group.fields import Header, MalformedMessage, integers, section
from engine.group.messages import Message
from engine.group.values import error_from_header
from node.groups.group_errors import GroupNotStarted
from node.groups.rank_proof import CHALLENGE_BYTES, NotProven, Purpose, prove_to_rank
from node.groups.rank_socket import RankSocket

PROOF_SECONDS = 2.0
"""What a stranger may hold up the others."""
LOOK_SECONDS = 0.1
END_SECONDS = 0.5
"""From the end of a process's connections to that of the process."""


@dataclass(slots=True)
class Member:
    """One rank's connections; `ports` are free ones on its host."""

    commands: RankSocket
    pulse: RankSocket
    ports: list[int] = field(default_factory=list)


class Gathering:
    """Waits for ranks. `fault` gives a sentence about a process that ended, "" while none has."""

    def __init__(
        self, rank_count: int, nonce: bytes, fault: Callable[[], str], *, until: float
    ) -> None:
        """Gives up at `until` monotonic seconds."""
        self._rank_count = rank_count
        self._nonce = nonce
        self._fault = fault
        self._until = until
        self._found: dict[tuple[Purpose, int], RankSocket] = {}

    def members(self, listener: socket.socket) -> list[Member]:
        """All ranks, in their order. Raises `GroupNotStarted`; then `close` ends what came."""
        listener.settimeout(LOOK_SECONDS)
        while len(self._found) < self._rank_count * len(Purpose):
            self._check("connected")
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            self._take(connection)
        found = [
            Member(self._found[Purpose.COMMANDS, rank], self._found[Purpose.PULSE, rank])
            for rank in range(self._rank_count)
        ]
        for rank, member in enumerate(found):
            greeting = self._next(rank, member.commands)
            try:
                member.ports = integers(greeting, "ports")
            except MalformedMessage as error:
                raise _strange(rank, error) from error
        return found

    def tell(self, rank: int, member: Member, message: Message) -> None:
        """Sends a rank what it waits for. Raises `GroupNotStarted`."""
        try:
            member.commands.send(message)
        except OSError as error:
            raise self._ended(rank, error) from error

    def wait_ready(self, members: list[Member]) -> None:
        """Until every rank has loaded its part.

        Raises what one of them raised for the model, naming the rank, and
        `GroupNotStarted`.
        """
        waiting = dict(enumerate(members))
        with selectors.DefaultSelector() as selector:
            for rank, member in waiting.items():
                selector.register(member.commands.connection, selectors.EVENT_READ, rank)
            while waiting:
                self._check("loaded its part")
                for key, _ in selector.select(LOOK_SECONDS):
                    rank = int(key.data)
                    answer = self._next(rank, waiting.pop(rank).commands)
                    selector.unregister(key.fileobj)
                    if answer.get("error") is not None:
                        raise _refusal(rank, answer)

    def close(self) -> None:
        """Ends every connection that came."""
        for found in self._found.values():
            found.end()
            found.connection.close()
        self._found.clear()

    def _take(self, connection: socket.socket) -> None:
        """Keeps a connection that is proven; one of a stranger is closed."""
        connection.settimeout(PROOF_SECONDS)
        found = RankSocket(connection)
        try:
            claim = prove_to_rank(
                self._nonce,
                self._rank_count,
                secrets.token_bytes(CHALLENGE_BYTES),
                lambda count: bytes(found.read(count)),
                connection.sendall,
            )
        except (OSError, EOFError, NotProven):
            connection.close()
            return
        if (claim.purpose, claim.rank) in self._found:
            connection.close()
            return
        self._found[claim.purpose, claim.rank] = found

    def _next(self, rank: int, commands: RankSocket) -> Header:
        commands.connection.settimeout(max(LOOK_SECONDS, self._until - time.monotonic()))
        try:
            message: Message = commands.receive()
        except (OSError, EOFError) as error:
            raise self._ended(rank, error) from error
        except MalformedMessage as error:
            raise _strange(rank, error) from error
        return message.header

    def _ended(self, rank: int, error: OSError | EOFError) -> GroupNotStarted:
        """A rank's connection ended: how its process did, if it is one of this host."""
        until = time.monotonic() + END_SECONDS
        while not (fault := self._fault()) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS / 10)
        return GroupNotStarted(
            f"rank {rank} ended before it was ready ({fault or error})",
            "its own words are above, in the log of this node",
            rank=str(rank),
        )

    def _check(self, what: str) -> None:
        fault = self._fault()
        if fault:
            raise GroupNotStarted(
                f"{fault} before every rank had {what}",
                "its own words are above, in the log of this node",
            )
        if time.monotonic() > self._until:
            missing = [
                str(rank)
                for rank in range(self._rank_count)
                if (Purpose.COMMANDS, rank) not in self._found
            ]
            who = f"rank {', '.join(missing)} had" if missing else "every rank had"
            raise GroupNotStarted(
                f"the time was up before {who} {what}",
                "see that the hosts of the hostfile run, reach this node, and know the model",
            )


def _refusal(rank: int, answer: Header) -> Exception:
    """What the rank raised, with its number."""
    try:
        error = error_from_header(section(answer, "error"))
    except MalformedMessage as strange:
        return _strange(rank, strange)
    words = f"rank {rank}: {error}"
    if isinstance(error, EngineError):
        return type(error)(words, **error.metadata)
    return ModelUnusable(words)


def _strange(rank: int, error: MalformedMessage) -> GroupNotStarted:
    return GroupNotStarted(
        f"rank {rank} says what makes no sense ({error})",
        "see that every host has the same version of this program",
        rank=str(rank),
    )

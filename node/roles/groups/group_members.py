"""A group's ranks as they come: two proven connections of each, then their part of the model."""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field

from kakeya_fleet.engine.errors import EngineError, ModelUnusable
from kakeya_fleet.engine.group.fields import Header, MalformedMessage, integers, section
from kakeya_fleet.engine.group.messages import Message
from kakeya_fleet.engine.group.values import error_from_header
from kakeya_fleet.node.errors import GroupNotStarted
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits
from kakeya_fleet.node.roles.groups.rank_proof import (
    CHALLENGE_BYTES,
    NotProven,
    Purpose,
    prove_to_rank,
)
from kakeya_fleet.node.roles.groups.rank_socket import RankSocket

PULSE_BYTES = 4096
MOST_PORT = 65_535


@dataclass(slots=True)
class Member:
    """One rank's connections; `ports` are free ones on its host."""

    commands: RankSocket
    pulse: RankSocket
    ports: list[int] = field(default_factory=list)


def has_pulse(member: Member) -> bool:
    """Takes what a rank's pulse said; False when the rank is gone."""
    try:
        return bool(member.pulse.connection.recv(PULSE_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False


class Gathering:
    """Waits for ranks. `fault` gives a sentence about a process that ended, "" while none has."""

    def __init__(
        self,
        rank_count: int,
        nonce: bytes,
        fault: Callable[[], str],
        limits: GroupLimits,
        *,
        until: float,
    ) -> None:
        """Gives up at `until` monotonic seconds, and on a rank that is silent for too long."""
        self._rank_count = rank_count
        self._nonce = nonce
        self._fault = fault
        self._until = until
        self._limits = limits
        self._found: dict[tuple[Purpose, int], RankSocket] = {}

    def members(self, listener: socket.socket) -> list[Member]:
        """All ranks, in their order. Raises `GroupNotStarted`; then `close` ends what came."""
        listener.settimeout(self._limits.look_seconds)
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
        for member in found:
            member.pulse.connection.settimeout(0.0)
        with closing(self._messages(found, "said which ports are free")) as greetings:
            for rank, greeting in greetings:
                found[rank].ports = _ports(rank, greeting)
        for rank, member in enumerate(found):
            if len(member.ports) != len(found[0].ports):
                raise _strange(rank, MalformedMessage(f"it has {len(member.ports)} ports"))
        return found

    def tell(self, rank: int, member: Member, message: Message) -> None:
        """Sends a rank what it waits for. Raises `GroupNotStarted`."""
        try:
            member.commands.connection.settimeout(self._limits.message_seconds)
            member.commands.send(message)
        except OSError as error:
            raise self._ended(rank, error) from error

    def wait_ready(self, members: list[Member]) -> None:
        """Until every rank has loaded its part.

        Raises what one of them raised for the model, naming the rank, and
        `GroupNotStarted`.
        """
        with closing(self._messages(members, "loaded its part")) as answers:
            for rank, answer in answers:
                if answer.get("error") is not None:
                    raise _refusal(rank, answer)

    def close(self) -> None:
        """Ends every connection that came."""
        for found in self._found.values():
            found.end()
            found.connection.close()
        self._found.clear()

    def _messages(
        self, members: list[Member], what: str
    ) -> Generator[tuple[int, Header], None, None]:
        """One message of each rank, with its number, as they come.

        Meanwhile all of them must have a pulse. Raises `GroupNotStarted`.
        """
        waiting = dict(enumerate(members))
        heard = dict.fromkeys(waiting, time.monotonic())
        with selectors.DefaultSelector() as selector:
            for rank, member in waiting.items():
                commands, pulse = member.commands.connection, member.pulse.connection
                selector.register(commands, selectors.EVENT_READ, (Purpose.COMMANDS, rank))
                selector.register(pulse, selectors.EVENT_READ, (Purpose.PULSE, rank))
            while waiting:
                self._check(what)
                # All that lay ready then is read below, also when this process was frozen since.
                looked = time.monotonic()
                for key, _ in selector.select(self._limits.look_seconds):
                    purpose, rank = key.data
                    if purpose is Purpose.COMMANDS:
                        selector.unregister(key.fileobj)
                        yield rank, self._next(rank, waiting.pop(rank).commands)
                    elif has_pulse(members[rank]):
                        heard[rank] = time.monotonic()
                    else:
                        raise self._ended(rank, EOFError("its pulse ended"))
                self._check_heard(heard, looked)

    def _check_heard(self, heard: dict[int, float], looked: float) -> None:
        most = self._limits.loading_seconds
        for rank, last in heard.items():
            if looked - last > most:
                raise GroupNotStarted(
                    f"rank {rank} was silent for {most:g} s",
                    "see whether its host still runs",
                    rank=str(rank),
                )

    def _take(self, connection: socket.socket) -> None:
        """Keeps a connection that is proven; one of a stranger is closed."""
        connection.settimeout(self._limits.proof_seconds)
        until = time.monotonic() + self._limits.proof_seconds
        found = RankSocket(connection)
        try:
            claim = prove_to_rank(
                self._nonce,
                self._rank_count,
                secrets.token_bytes(CHALLENGE_BYTES),
                lambda count: bytes(found.read(count, until=until)),
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
        """The message that has begun to come."""
        until = time.monotonic() + self._limits.message_seconds
        try:
            message: Message = commands.receive(most_array_bytes=0, until=until)
        except (OSError, EOFError) as error:
            raise self._ended(rank, error) from error
        except MalformedMessage as error:
            raise _strange(rank, error) from error
        return message.header

    def _ended(self, rank: int, error: OSError | EOFError) -> GroupNotStarted:
        """A rank's connection ended: how its process did, if it is one of this host."""
        until = time.monotonic() + self._limits.end_seconds
        while not (fault := self._fault()) and time.monotonic() < until:
            time.sleep(self._limits.look_seconds / 10)
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


def _ports(rank: int, greeting: Header) -> list[int]:
    try:
        ports = integers(greeting, "ports")
        if not ports or not all(0 < port <= MOST_PORT for port in ports):
            raise MalformedMessage(f"{ports} are no ports")
    except MalformedMessage as error:
        raise _strange(rank, error) from error
    return ports


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

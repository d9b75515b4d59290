"""A group's messages over a socket, from either end."""

from __future__ import annotations

import socket
import time

from kakeya_fleet.engine.group.channel import RankLost
from kakeya_fleet.engine.group.fields import MalformedMessage
from kakeya_fleet.engine.group.messages import MAX_ARRAY_BYTES, Buffer, Message, decode, encode


class RankSocket:
    """Whole messages over a connected socket; used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        # A command is one small write that somebody waits for.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection

    @property
    def connection(self) -> socket.socket:
        """The socket itself, to wait for."""
        return self._connection

    def send(self, message: Message) -> None:
        """Sends a message. Raises `OSError`."""
        for part in encode(message):
            self._connection.sendall(part)

    def receive(
        self, *, most_array_bytes: int = MAX_ARRAY_BYTES, until: float | None = None
    ) -> Message:
        """The next message. Raises `OSError`, `EOFError` at the end, `MalformedMessage`.

        All of it must be there at `until` monotonic seconds: else `TimeoutError`.
        """
        return decode(
            lambda count: self.read(count, until=until), most_array_bytes=most_array_bytes
        )

    def read(self, count: int, *, until: float | None = None) -> Buffer:
        """Exactly `count` bytes. Raises `OSError`, `EOFError`, `TimeoutError` at `until`."""
        data = memoryview(bytearray(count))
        filled = 0
        while filled < count:
            if until is not None:
                self._connection.settimeout(_left(until))
            received = self._connection.recv_into(data[filled:])
            if not received:
                raise EOFError("the connection was closed")
            filled += received
        return data

    def end(self) -> None:
        """Ends the connection; whoever waits for it is told at once. Any thread may call."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was first
            return


def _left(until: float) -> float:
    """Seconds that are left. Raises `TimeoutError`."""
    left = until - time.monotonic()
    if left <= 0.0:
        raise TimeoutError("timed out")
    return left


class SocketChannel:
    """The leader's way to one rank; see `engine.group.channel.RankChannel`."""

    def __init__(self, rank: int, rank_socket: RankSocket, *, send_seconds: float) -> None:
        """A rank that takes no command within `send_seconds` is lost."""
        self._rank = rank
        self._socket = rank_socket
        self._send_seconds = send_seconds

    @property
    def rank(self) -> int:
        """Its number, from 0."""
        return self._rank

    def send(self, message: Message) -> None:
        """Hands over a command. Raises `RankLost`."""
        try:
            self._socket.connection.settimeout(self._send_seconds)
            self._socket.send(message)
        except OSError as error:
            raise RankLost(f"rank {self._rank} takes no command: {error}") from error

    def receive(self, *, seconds: float) -> Message:
        """The next answer. Raises `RankLost`, also when a piece of it takes so long to come."""
        try:
            self._socket.connection.settimeout(seconds)
            # Only rank 0 answers with numbers.
            return self._socket.receive(most_array_bytes=0 if self._rank else MAX_ARRAY_BYTES)
        except TimeoutError as error:
            raise RankLost(f"rank {self._rank} did not answer within {seconds:g} s") from error
        except (OSError, EOFError) as error:
            raise RankLost(f"rank {self._rank} died: {error}") from error
        except MalformedMessage as error:
            raise RankLost(f"rank {self._rank} says what makes no sense: {error}") from error

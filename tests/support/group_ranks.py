"""Ranks of a group in this process: each message goes through its bytes and back."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.group.channel import RankLost
from kakeya_fleet.engine.group.group_verifier import GroupVerifier
from kakeya_fleet.engine.group.messages import Message, decode, encode
from kakeya_fleet.engine.group.rank_server import RankServer


def through_bytes(message: Message) -> Message:
    """What the other end of a connection gets."""
    data = io.BytesIO(b"".join(bytes(part) for part in encode(message)))
    received = decode(data.read)
    assert not data.read()
    return received


class LocalRank:
    """A rank that runs a command as soon as it is sent. `dies` makes it answer no more."""

    def __init__(self, rank: int, verifier: Verifier) -> None:
        self.rank = rank
        self.server = RankServer(verifier, leads=rank == 0)
        self.commands: list[str] = []
        self.dies = False
        self.on_answer: Callable[[], None] = lambda: None
        self._answers: deque[Message] = deque()

    def send(self, message: Message) -> None:
        self.commands.append(str(message.header["do"]))
        if not self.dies:
            self._answers.append(through_bytes(self.server.answer(through_bytes(message))))

    def receive(self, *, seconds: float) -> Message:
        self.on_answer()
        if self.dies:
            raise RankLost(f"rank {self.rank} died")
        return self._answers.popleft()


def group_of(verifiers: Sequence[Verifier]) -> tuple[GroupVerifier, list[LocalRank]]:
    """A group whose ranks have loaded these."""
    ranks = [LocalRank(rank, verifier) for rank, verifier in enumerate(verifiers)]
    return GroupVerifier.of_ranks(ranks, answer_seconds=5.0), ranks

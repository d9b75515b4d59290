"""What may go wrong between the first connection of a rank and its readiness, and how soon."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from kakeya_fleet.engine.group.messages import Message, encode
from kakeya_fleet.node.errors import GroupNotStarted
from kakeya_fleet.node.roles.groups import rank_process
from kakeya_fleet.node.roles.groups.group_members import Gathering
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits
from kakeya_fleet.node.roles.groups.launching import Launch, Processes
from kakeya_fleet.node.roles.groups.rank_environment import RankEnvironment
from kakeya_fleet.node.roles.groups.rank_proof import Purpose
from kakeya_fleet.node.roles.groups.rank_socket import RankSocket
from tests.support.patience import PATIENCE_SECONDS

NONCE = b"n" * 32
PORTS = Message({"ports": [20_001]})


class Meeting:
    """A leader that gathers, and ranks in threads of this process that say what a test says."""

    def __init__(self, **limits: Any) -> None:
        self.fault = ""
        self.held = ExitStack()
        self.listener = self.held.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.gathering = Gathering(
            2,
            NONCE,
            lambda: self.fault,
            GroupLimits(**limits),
            until=time.monotonic() + 20.0,
        )
        self.held.callback(self.gathering.close)
        self.sockets: dict[tuple[Purpose, int], RankSocket] = {}

    def come(self, rank: int) -> None:
        """Both connections of a rank, proven."""
        port = self.listener.getsockname()[1]
        own = RankEnvironment(NONCE, "127.0.0.1", port, rank, 2, 1, None)
        for purpose in Purpose:
            found = rank_process._connected(own, purpose)
            self.held.callback(found.connection.close)
            self.sockets[purpose, rank] = found

    def ranks(self, *said: bytes) -> threading.Thread:
        """Comes as one rank after the other, each of which says these bytes."""

        def run() -> None:
            for rank in range(len(said)):
                self.come(rank)
            for rank, words in enumerate(said):
                self.sockets[Purpose.COMMANDS, rank].connection.sendall(words)

        thread = threading.Thread(target=run)
        thread.start()
        self.held.callback(thread.join)
        return thread


Meet = Callable[..., Meeting]


@pytest.fixture
def meet() -> Iterator[Meet]:
    with ExitStack() as held:

        def make(**options: float) -> Meeting:
            found = Meeting(**options)
            held.enter_context(found.held)
            return found

        yield make


def frame(message: Message) -> bytes:
    return b"".join(bytes(part) for part in encode(message))


def test_ranks_are_told_apart_and_give_up_a_leader_whose_host_is_gone(meet: Meet) -> None:
    meeting = meet()
    meeting.ranks(frame(PORTS), frame(Message({"ports": [20_002]})))
    members = meeting.gathering.members(meeting.listener)
    assert [member.ports for member in members] == [[20_001], [20_002]]
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        for found in meeting.sockets.values():
            assert found.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == (
                1000 * rank_process.GONE_SECONDS
            )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (frame(PORTS)[:-3], "rank 1 ended before it was ready"),
        (frame(Message({"ports": []})), "rank 1 says what makes no sense"),
        (frame(Message({"ports": [20_001, 20_002]})), "rank 1 says what makes no sense"),
        (frame(Message({"ports": [1 << 16]})), "rank 1 says what makes no sense"),
    ],
    ids=["half", "none", "other count", "no port"],
)
def test_a_greeting_that_is_none_ends_the_start(meet: Meet, words: bytes, said: str) -> None:
    meeting = meet(message_seconds=3.0)
    meeting.ranks(frame(PORTS), words)
    with pytest.raises(GroupNotStarted, match=said):
        meeting.gathering.members(meeting.listener)


def test_a_rank_that_has_no_pulse_any_more_is_not_waited_for(meet: Meet) -> None:
    # Forty beats of the other: a busy machine keeps this process from running for some of them.
    meeting = meet(silence_seconds=2.0, loading_silence_seconds=2.0)
    meeting.ranks(frame(PORTS), frame(PORTS))
    members = meeting.gathering.members(meeting.listener)
    going = True

    def beat() -> None:
        while going:
            meeting.sockets[Purpose.PULSE, 0].connection.sendall(b"\1")
            time.sleep(0.05)

    beating = threading.Thread(target=beat)
    beating.start()
    began = time.monotonic()
    try:
        with pytest.raises(GroupNotStarted, match="rank 1 was silent for 2 s"):
            meeting.gathering.wait_ready(members)
        assert time.monotonic() - began > 1.5
        meeting.sockets[Purpose.PULSE, 1].connection.shutdown(socket.SHUT_RDWR)
        with pytest.raises(GroupNotStarted, match="rank 1 ended before it was ready"):
            meeting.gathering.wait_ready(members)
    finally:
        going = False
        beating.join()


def test_words_that_a_process_never_reads_do_not_keep_the_others() -> None:
    processes = Processes()
    processes.start(Launch("first", [sys.executable, "-c", "import time; time.sleep(60)"], {}))
    try:
        with pytest.raises(OSError, match=r"[Bb]roken pipe"):
            # More than a pipe holds.
            processes.start(Launch("second", ["true"], {}, b"x" * (1 << 20)))
    finally:
        processes.kill()
    assert processes.fault() == ""


def test_of_several_that_ended_the_one_that_was_killed_is_named() -> None:
    """The others end by themselves, and may be seen first."""
    processes = Processes()
    for name, script in (
        ("rank 0", "raise SystemExit(1)"),
        ("rank 1", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
    ):
        processes.start(Launch(name, [sys.executable, "-c", script], {}))
    try:
        for process in processes._running.values():
            process.wait(PATIENCE_SECONDS)
        assert processes.fault() == "rank 1 ended by signal 9"
    finally:
        processes.kill()


def test_what_a_process_started_ends_with_it(tmp_path: Path) -> None:
    """As the ssh processes of mlx.launch, which cannot end them when it is killed."""
    told = tmp_path / "pid"
    script = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        f"open({str(told)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    processes = Processes()
    processes.start(Launch("launcher", [sys.executable, "-c", script], {}))
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while not told.exists() or not told.read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        child = psutil.Process(int(told.read_text()))
    finally:
        processes.kill()
    # An orphan is somebody else's to wait for: it may stay a zombie.
    until = time.monotonic() + PATIENCE_SECONDS
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.01)

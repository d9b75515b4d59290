"""A group of processes: whatever happens to one of them ends that group alone, and all of it."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import ArchitectureUnsupported, GroupLost
from kakeya_fleet.engine.group.group_verifier import GroupVerifier
from kakeya_fleet.node.errors import GroupNotStarted
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.groups.running_group import RunningGroup
from tests.support import rank_groups as groups
from tests.support.patience import PATIENCE_SECONDS

RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
SILENCE = 1.5
LIMITS = GroupLimits(silence_seconds=SILENCE, start_seconds=PATIENCE_SECONDS)


class Started:
    """A group and what was heard of it."""

    def __init__(self, hostfile: Path, model: str, limits: GroupLimits) -> None:
        settings = GroupSource(hostfile, limits=limits).settings(
            model, dtype="float32", backend="auto"
        )
        self.lost: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.group = RunningGroup(settings, self.lost.put)

    @property
    def verifier(self) -> GroupVerifier:
        return self.group.ready.result(PATIENCE_SECONDS)


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts groups of hash ranks; nothing of them may be left afterwards."""
    monkeypatch.setattr(
        "kakeya_fleet.node.roles.groups.rank_starting.rank_command", groups.hash_rank_command
    )
    started: list[Started] = []

    def run(model: str = "hash", count: int = 2, limits: GroupLimits = LIMITS) -> Started:
        started.append(Started(groups.write_hostfile(tmp_path, count), model, limits))
        return started[-1]

    threads, ports = threading.active_count(), groups.listening()
    descriptors = psutil.Process().num_fds()
    yield run
    for each in started:
        each.group.close()
    assert groups.ranks_of() == []
    assert threading.active_count() == threads
    assert groups.listening() == ports
    assert psutil.Process().num_fds() == descriptors


def test_a_group_serves_and_leaves_nothing_behind(start: Start) -> None:
    ports = groups.listening()
    started = start(count=3)
    verifier = started.verifier
    assert (verifier.rank_count, verifier.info.architecture) == (3, "hash")
    ranks = groups.ranks_of()
    assert len(ranks) == 3
    # No command line tells what only members of the group may know.
    for rank in ranks:
        nonce = rank.environ()["KAKEYA_GROUP_NONCE"]
        assert len(nonce) == 64
        assert nonce not in " ".join(rank.cmdline())
    assert groups.listening() == ports
    cache = verifier.allocate(RING)
    logits = verifier.forward(cache, [1, 2, 3], want_logits=True)
    assert logits is not None
    assert logits.shape == (3, verifier.info.vocabulary_size)
    started.group.close()
    assert groups.gone(ranks)
    with pytest.raises(GroupLost, match="it was closed"):
        verifier.forward(cache, [4], want_logits=True)
    assert started.lost.empty()


def test_a_rank_that_dies_ends_the_group_and_the_call_that_waits_at_once(start: Start) -> None:
    started = start()
    verifier = started.verifier
    cache = verifier.allocate(RING)
    ranks = groups.ranks_of()
    ended: list[str] = []

    def work() -> None:
        try:
            for token in itertools.cycle(range(9)):
                verifier.forward(cache, [token], want_logits=True)
                cache.truncate(0 if cache.length < 2 else cache.length - 1)
        except GroupLost as error:
            ended.append(str(error))

    worker = threading.Thread(target=work)
    worker.start()
    ranks[0].send_signal(signal.SIGKILL)
    worker.join(PATIENCE_SECONDS)
    reason = started.lost.get(timeout=PATIENCE_SECONDS)
    assert reason in ended[0]
    assert "rank 0" in reason
    assert "silent" not in reason
    groups.wait_until(lambda: groups.gone(ranks))
    with pytest.raises(GroupLost):
        cache.fork(0)


def test_a_rank_that_freezes_while_nothing_is_asked_ends_the_group_within_the_deadline(
    start: Start,
) -> None:
    """While a step waits for it: `tests/node/roles/groups/test_served_group.py`."""
    started = start()
    assert started.verifier.lost == ""
    began = time.monotonic()
    groups.ranks_of()[1].send_signal(signal.SIGSTOP)
    assert started.lost.get(timeout=PATIENCE_SECONDS) == f"rank 1 was silent for {SILENCE:g} s"
    assert time.monotonic() - began > SILENCE - 0.5
    assert started.verifier.lost


def test_a_frozen_leader_finds_its_group_alive(tmp_path: Path) -> None:
    """What is old is not silence: the pulses lie ready when it wakes."""
    leader = Leader(groups.write_hostfile(tmp_path))
    try:
        leader.process.send_signal(signal.SIGSTOP)
        time.sleep(1.3 * SILENCE)
        leader.process.send_signal(signal.SIGCONT)
        assert leader.ask() == "alive"
        # It has looked again by then.
        time.sleep(4 * LIMITS.look_seconds)
        assert leader.ask() == "alive"
    finally:
        leader.end()


def test_no_rank_outlives_a_leader_that_is_killed(tmp_path: Path) -> None:
    """Neither one that runs, nor one that is frozen."""
    leader = Leader(groups.write_hostfile(tmp_path))
    ranks = groups.ranks_of(leader.process.pid)
    assert len(ranks) == 2
    try:
        ranks[0].send_signal(signal.SIGSTOP)
    finally:
        leader.end()
    groups.wait_until(lambda: groups.gone(ranks))


class Leader:
    """Another process that leads a group."""

    def __init__(self, hostfile: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.group_leader", str(hostfile), str(SILENCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._asking, self._answering = self.process.stdin, self.process.stdout
        assert self.answer() == "ready"

    def answer(self) -> str:
        return self._answering.readline().strip()

    def ask(self) -> str:
        self._asking.write("?\n")
        self._asking.flush()
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._asking.close()
        self._answering.close()


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("refused", ArchitectureUnsupported, r"rank [01]: hashes cannot be split"),
        ("crash", GroupNotStarted, r"rank 1 ended .*with status 7"),
    ],
)
def test_what_keeps_a_rank_from_its_part_is_told_by_name(
    start: Start, model: str, error: type[Exception], words: str
) -> None:
    started = start(model)
    with pytest.raises(error, match=words):
        started.group.ready.result(30)
    groups.wait_until(lambda: groups.ranks_of() == [])
    assert started.lost.empty()


def test_a_program_that_is_not_there_is_named(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kakeya_fleet.node.roles.groups.rank_starting.rank_command", lambda: ["/no/such/python"]
    )
    with pytest.raises(GroupNotStarted, match="rank 0 cannot be started"):
        start().group.ready.result(30)


def test_strangers_on_the_port_are_neither_members_nor_in_the_way(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One says nothing, one says something else, one has the nonce of another group."""
    seen: list[tuple[str, int]] = []
    real = socket.create_server

    def observed(*args: Any, **options: Any) -> socket.socket:
        server = real(*args, **options)
        seen.append(server.getsockname())
        for words in (b"", b"GET / HTTP/1.1\r\n\r\n" + b"x" * 200):
            stranger = socket.create_connection(seen[-1])
            strangers.append(stranger)
            stranger.sendall(words)
        return server

    strangers: list[socket.socket] = []
    monkeypatch.setattr(socket, "create_server", observed)
    started = start(limits=replace(LIMITS, proof_seconds=0.5))
    try:
        assert started.verifier.rank_count == 2
    finally:
        for stranger in strangers:
            stranger.close()
    assert len(seen) == 1


def test_a_rank_without_a_leader_says_so() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "kakeya_fleet.node.roles.groups.rank_process"],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if "GROUP" not in name},
    )
    assert ran.returncode == 2
    assert "not a person" in ran.stderr

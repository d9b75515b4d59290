"""A verifier that is loaded takes the threads that suit it, unless a person said how many."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import structlog

from node.sessions import verifier_loading
from node.sessions.verifier_loading import StoreSettings, load_served_verifier


@dataclass
class FakeThreads:
    count: int = 8

    def use(self, count: int) -> None:
        self.count = count


@pytest.fixture
def threads(monkeypatch):
    given = FakeThreads()
    monkeypatch.setattr(verifier_loading, "threads_of", lambda _: given)
    return given


async def load(checkpoint) -> list[dict]:
    seconds = iter(range(10**9))
    store = StoreSettings(1 << 24, 60.0, lambda: next(seconds) / 1000, lambda *_: None)
    with structlog.testing.capture_logs() as log:
        served = await load_served_verifier(
            str(checkpoint), store, dtype="float32", backend="torch"
        )
    await served.worker.close()
    return [event for event in log if event["event"] == "fewer_threads"]


async def test_steps_that_take_as_long_with_one_are_given_one(checkpoint, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (told,) = await load(checkpoint)
    assert threads.count == told["threads"] == 1
    assert told["cores"] == 8


async def test_what_a_person_set_stays(checkpoint, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert await load(checkpoint) == []
    assert threads.count == 8


async def test_a_back_end_without_a_say_is_left_alone(checkpoint, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(verifier_loading, "threads_of", lambda _: None)
    assert await load(checkpoint) == []

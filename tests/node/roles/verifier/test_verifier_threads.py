"""A verifier that is loaded takes the threads that suit it, unless a person said how many."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch

from kakeya_fleet.engine.backends.torch_backend.threads import TorchThreads
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.verifiers.exactness import Exactness, settle
from kakeya_fleet.node.roles.verifier import verifier_loading
from kakeya_fleet.node.roles.verifier.verifier_loading import Admission, load_served_verifier
from kakeya_fleet.node.roles.worker import ignore_faults
from tests.support import checkpoint as random_model


@dataclass
class FakeThreads:
    count: int = 8

    def use(self, count: int) -> None:
        self.count = count


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> FakeThreads:
    given = FakeThreads()
    monkeypatch.setattr(verifier_loading, "threads_of", lambda _: given)
    return given


def admitted(clock: Callable[[], float]) -> Admission:
    return Admission(SessionRegistry(clock=clock, ids=str), 1 << 24, clock, ignore_faults)


async def load(checkpoint: Path) -> list[MutableMapping[str, Any]]:
    seconds = iter(range(10**9))
    admission = admitted(lambda: next(seconds) / 1000)
    with structlog.testing.capture_logs() as log:
        served = await load_served_verifier(
            str(checkpoint), admission, dtype="float32", backend="torch"
        )
    await served.worker.close()
    return [event for event in log if event["event"] == "fewer_threads"]


async def test_steps_that_take_as_long_with_one_are_given_one(
    checkpoint: Path, threads: FakeThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (told,) = await load(checkpoint)
    assert threads.count == told["threads"] == 1
    assert told["cores"] == 8


async def test_what_a_person_set_stays_and_a_back_end_without_a_say_is_left_alone(
    checkpoint: Path, threads: FakeThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert await load(checkpoint) == []
    assert threads.count == 8
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(verifier_loading, "threads_of", lambda _: None)
    assert await load(checkpoint) == []


async def test_exactness_is_checked_and_told_with_the_threads_that_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By torch's operators, whose bits may be others in other threads.
    checkpoint = random_model.make(tmp_path / "random", 512, head_size=16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    checked: list[int] = []

    def chosen(_verifier: object, threads: TorchThreads, _clock: object) -> int:
        threads.use(3)
        return threads.count

    def settled(verifier: Verifier, _arithmetic: str) -> Exactness:
        checked.append(verifier.thread_count)
        return settle(verifier)

    monkeypatch.setattr(verifier_loading, "threads_of", lambda _: TorchThreads())
    monkeypatch.setattr(verifier_loading, "settle_threads", chosen)
    monkeypatch.setattr(verifier_loading, "settle_once", settled)
    served = await load_served_verifier(
        str(checkpoint), admitted(lambda: 0.0), dtype="float32", backend="torch"
    )
    try:
        serving = await served.worker.run(torch.get_num_threads)
        assert checked == [3]
        assert served.offer.thread_count == serving == 3
        assert served.offer.arithmetic.startswith(f"torch {torch.__version__} ")
    finally:
        await served.worker.close()

"""The fewest threads that lose no speed, and that what is exact holds for their number."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kakeya_fleet.engine.backends import load_verifier, threads_of
from kakeya_fleet.engine.backends.torch_backend.threads import MACHINE, TorchThreads
from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers.exactness import Exactness, is_exact, settle
from kakeya_fleet.engine.verifiers.thread_count import LONG_STEP_SECONDS, ROUNDS, settle_threads
from tests.support.breadth import wide


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    path = random_checkpoint(num_hidden_layers=2, max_position_embeddings=4096)
    return load_verifier(ModelFolder(path, "random"))


class FakeThreads:
    def __init__(self, count: int) -> None:
        self.count = count

    def use(self, count: int) -> None:
        self.count = count


class Timed:
    """A verifier whose forwards take as long as `seconds(threads, tokens)` says."""

    def __init__(self, seconds: Callable[[int, int], float], threads: FakeThreads) -> None:
        self._seconds = seconds
        self._threads = threads
        self.now = 0.0
        self.forwards = 0
        self.length = 0
        self.info = self
        self.width, self.vocabulary_size, self.context_length = 16, 50, 4096
        self.widest = 64

    def clock(self) -> float:
        return self.now

    def allocate(self, _spec: CacheSpec) -> Timed:
        self.length = 0
        return self

    def release(self) -> None:
        pass

    def truncate(self, length: int) -> None:
        self.length = length

    def forward(self, _cache: object, token_ids: list[int], *, want_logits: bool) -> None:
        del want_logits
        self.forwards += 1
        self.length += len(token_ids)
        self.now += self._seconds(self._threads.count, len(token_ids))


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        (lambda threads, tokens: 0.001, 1),
        (lambda threads, tokens: 0.001 * 8 / threads, 8),
        # Until four they help.
        (lambda threads, tokens: 0.001 * 4 / min(threads, 4), 4),
        # A little slower is as fast.
        (lambda threads, tokens: 0.001 * (1.05 if threads < 8 else 1.0), 1),
        # Blocks count as single tokens do.
        (lambda threads, tokens: 0.001 * (8 / threads if tokens == 16 else 1.0), 8),
        (lambda threads, tokens: 0.001 * (8 / threads if tokens == 1 else 8.0), 8),
        # More than there is work for are slower.
        (lambda threads, tokens: 0.001 * threads, 1),
    ],
    ids=["none help", "all help", "four help", "about as fast", "blocks", "tokens", "fewer better"],
)
def test_the_fewest_that_lose_no_speed_are_taken(
    seconds: Callable[[int, int], float], chosen: int
) -> None:
    threads = FakeThreads(8)
    timed = Timed(seconds, threads)
    assert settle_threads(timed, threads, timed.clock) == chosen  # type: ignore[arg-type]
    assert threads.count == chosen


def test_one_passing_load_does_not_decide() -> None:
    threads = FakeThreads(2)
    timed = Timed(lambda *_: 0.001 * (5 if timed.forwards % 40 == 39 else 1), threads)
    assert settle_threads(timed, threads, timed.clock) == 1  # type: ignore[arg-type]


def test_a_long_step_keeps_all_threads_and_is_not_measured_over_and_over() -> None:
    threads = FakeThreads(8)
    timed = Timed(lambda *_: 1.5 * LONG_STEP_SECONDS, threads)
    assert settle_threads(timed, threads, timed.clock) == threads.count == 8  # type: ignore[arg-type]
    once = timed.forwards
    timed = Timed(lambda *_: 0.001, threads := FakeThreads(2))
    settle_threads(timed, threads, timed.clock)  # type: ignore[arg-type]
    assert timed.forwards == 2 * ROUNDS * once


@pytest.mark.parametrize(
    ("sizes", "count"),
    [({"num_attention_heads": 7}, 2), wide({"num_attention_heads": 1, "head_dim": 24}, 3)],
    ids=["seven groups", "one head of 24"],
)
def test_one_key_head_is_exact_with_the_threads_that_it_was_settled_with(
    random_checkpoint: Callable[..., Path], sizes: dict[str, int], count: int
) -> None:
    """Some numbers of threads round these shapes otherwise, on some machines."""
    path = random_checkpoint(
        num_hidden_layers=1, num_key_value_heads=1, max_position_embeddings=200, **sizes
    )

    def settled() -> tuple[Exactness, bool]:
        TorchThreads().use(count)
        verifier = load_verifier(ModelFolder(path, "random"))
        return settle(verifier), is_exact(verifier, seed=1)

    with ThreadPoolExecutor(1) as thread:
        found, again = thread.submit(settled).result()
    assert found.thread_count == count
    assert found.exact == again


def test_other_threads_keep_theirs(verifier: Verifier) -> None:
    threads = threads_of(verifier)
    assert threads is not None
    before = torch.get_num_threads()
    with ThreadPoolExecutor(1) as worker, ThreadPoolExecutor(1) as later:
        worker.submit(threads.use, MACHINE + 2).result()
        assert worker.submit(lambda: threads.count).result() == MACHINE + 2
        assert later.submit(torch.get_num_threads).result() == MACHINE
    assert torch.get_num_threads() == before


def test_back_ends_without_a_say_have_none(verifier: Verifier) -> None:
    class Elsewhere:
        info = replace(verifier.info, backend="mlx")

    assert threads_of(Elsewhere()) is None  # type: ignore[arg-type]

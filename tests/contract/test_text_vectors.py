"""The vector of a text: transformers' mean of hidden states, and the same bits in any company."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.mean_pool import MeanPool
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, ReadTurn, VerifyTurn, run_turns
from tests.support.breadth import all_wide_but
from tests.support.small_verifiers import COMPILED, FITTING

TEXT = [(11 * index + index * index // 7) % 96 for index in range(150)]
"""Longer than any forward."""
TEXTS = (TEXT, TEXT[40:90], TEXT[7:8], TEXT[3:67])


class Reading:
    """A text on its way into its vector."""

    def __init__(self, verifier: Verifier, text: Sequence[int]) -> None:
        spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=len(text))
        self.session = Session(verifier, verifier.allocate(spec))
        self.session.append(text)
        self.pool = MeanPool(verifier.info.hidden_size)

    @property
    def turn(self) -> ReadTurn:
        return ReadTurn(self.session, self.pool)

    def vector(self) -> np.ndarray:
        self.session.end("read")
        return self.pool.vector()


def alone(verifier: Verifier, text: Sequence[int]) -> np.ndarray:
    reading = Reading(verifier, text)
    while reading.turn():
        pass
    return reading.vector()


def test_it_is_the_mean_of_transformers_hidden_states(
    verifier: Verifier, request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    is_compiled = request.node.callspec.params["verifier"] == COMPILED
    path = random_checkpoint("Qwen3ForCausalLM", **(FITTING if is_compiled else {}))
    model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    for text in TEXTS:
        with torch.inference_mode():
            states = model(torch.tensor([text])).last_hidden_state[0].numpy()
        mean = states.astype(np.float64).mean(axis=0)
        vector = alone(verifier, text)
        assert vector.dtype == np.float32
        assert vector == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


@pytest.mark.parametrize("seed", all_wide_but([0], range(3)))
def test_its_bits_do_not_depend_on_the_chunks_nor_on_the_company(
    verifier: Verifier, seed: int
) -> None:
    rng = random.Random(seed)
    expected = [alone(verifier, text) for text in TEXTS]
    readings = [Reading(verifier, text) for text in TEXTS]
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
    talking = Session(verifier, verifier.allocate(spec))
    talking.append(TEXT[:40])
    while PrefillTurn(talking)():
        pass
    block = Block((), GREEDY, limit=1)
    waiting = list(readings)
    while waiting:
        room = verifier.row_counts[-1] - 1
        picked: list[tuple[ReadTurn, int]] = []
        for reading in rng.sample(waiting, len(waiting)):
            rows = min(rng.randint(1, 40), room, reading.turn.rows)
            if rows:
                picked.append((reading.turn, rows))
                room -= rows
        for ended in run_turns([(VerifyTurn(talking, block), 1), *picked]):
            assert ended.error is None, f"seed {seed}"
        waiting = [each for each in waiting if each.pool.count < len(each.session.history)]
    for reading, vector in zip(readings, expected, strict=True):
        assert reading.vector().tobytes() == vector.tobytes(), f"seed {seed}"
    talking.end("done")

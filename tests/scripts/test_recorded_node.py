"""What replays recorded answers in the place of a verifier."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from kakeya_fleet.engine.backends.torch_backend.compiled.batch import BatchOf
from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Feed
from scripts.bench.recorded_answers import Record
from scripts.bench.recorded_node import LARGE, Replay, replaying

PROMPT = (1, 2, 3)
GREEDY, DRAWN = (*PROMPT, 4, 5, 6), (*PROMPT, 4, 7, 8)
VOCABULARY, HIDDEN = 10, 2
TAPS = (3, 9)


class Cache:
    """As much of one as a replay looks at."""

    def __init__(self, length: int = 0) -> None:
        self.length = length


def states(seed: int) -> np.ndarray:
    """Of one stream."""
    return np.random.default_rng(seed).random((len(GREEDY), len(TAPS), HIDDEN), np.float32)


@pytest.fixture
def recorded() -> Record:
    parted = np.arange(VOCABULARY, dtype=np.float32)
    features = [[states(0), states(1)]]
    return Record([PROMPT], [[GREEDY, DRAWN]], [parted], features, TAPS, [0.0, 1e-3, 1e-3])


def begun(replay: Replay, cache: Cache, *tokens: int) -> None:
    """A forward of one feed, behind which the cache has its tokens."""
    replay.begin([Feed(cast(KvCache, cache), tokens, want_logits=True)])
    cache.length += len(tokens)


def said(replay: Replay, row: int = 0) -> int:
    """The token that is certain in a row of the forward under way."""
    (logits,) = replay.logits([row], VOCABULARY)
    assert sorted(logits)[-2:] == [0.0, LARGE]
    return int(logits.argmax())


def test_a_record_is_what_was_saved(recorded: Record, tmp_path: Path) -> None:
    recorded.save(tmp_path)
    read = Record.load(tmp_path)
    assert (read.prompts, read.streams, read.taps) == ([PROMPT], [[GREEDY, DRAWN]], TAPS)
    assert read.row_seconds == recorded.row_seconds
    assert (read.parted[0] == recorded.parted[0]).all()
    assert (read.features[0][1] == recorded.features[0][1]).all()


def test_what_is_said_follows_the_history_and_where_both_answers_part_the_logits(
    recorded: Record,
) -> None:
    replay, cache = Replay(recorded), Cache()
    begun(replay, cache, 1, 2)
    assert replay.rows is None
    begun(replay, cache, 3)
    assert said(replay) == 4
    begun(replay, cache, 4)
    assert (replay.logits([0], VOCABULARY)[0] == recorded.parted[0]).all()
    # A draft of three, of which the last differs: the cache is cut behind what was right.
    begun(replay, cache, 7, 8, 9)
    assert said(replay, 0) == 8
    cache.length -= 2
    begun(replay, cache, 8)
    assert replay.rows == [(0, DRAWN)]


def test_hidden_states_are_those_of_the_row_and_the_stream(recorded: Record) -> None:
    replay, cache = Replay(recorded), Cache()
    begun(replay, cache, 1, 2, 3, 4, 7)
    outputs = np.zeros((5, 1, HIDDEN), np.float32)
    batch = SimpleNamespace(tapped=SimpleNamespace(taps=(9,), outputs=outputs))
    replay.run(cast(BatchOf, batch))
    assert (outputs[:4] == states(0)[:4, 1:]).all()
    assert (outputs[4] == states(1)[4, 1:]).all()


def test_other_prompts_are_computed(recorded: Record) -> None:
    replay = Replay(recorded)
    begun(replay, Cache(), 2, 1, 3, 4)
    assert replay.rows is None


def test_the_command_of_a_node_is_that_of_one_that_replays(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kakeya_fleet.node.cli", "join", "--json"]
    assert replaying(tmp_path, words) == [
        sys.executable,
        "-m",
        "scripts.bench.recorded_node",
        str(tmp_path),
        "join",
        "--json",
    ]

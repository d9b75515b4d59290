"""A node whose verifier replays recorded answers, in the time that they took.

    python -m scripts.bench.recorded_node FOLDER join ...

The words behind the folder are those of `fleet`. Histories that begin with no recorded prompt are
computed, and so is what is read of a prompt. A replayed forward takes its time, but neither memory
nor the processor: so the node is one that has processors besides those of its forwards.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.batch import BatchOf
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output
from kakeya_fleet.node.cli.main import main as fleet
from scripts.bench.recorded_answers import Record, Tokens

CLI = "kakeya_fleet.node.cli"
TRIED, TRIED_SECONDS = 51, 0.005
"""Pauses by which it is told how late sleepers wake."""
LARGE = 1e4
"""A logit beside which no other counts."""


def replaying(folder: Path, words: Sequence[str]) -> list[str]:
    """The command of an agent as that of a node that replays what is in `folder`."""
    at = list(words).index(CLI)
    return [*words[:at], "scripts.bench.recorded_node", str(folder), *words[at + 1 :]]


class Pauses:
    """As long as they are to be: a sleeper wakes late, by about as much each time."""

    def __init__(self) -> None:
        late = []
        for _ in range(TRIED):
            began = time.perf_counter()
            time.sleep(TRIED_SECONDS)
            late.append(time.perf_counter() - began - TRIED_SECONDS)
        self._late = statistics.median(late)

    def pause(self, seconds: float) -> None:
        """Returns after so long; meanwhile the processor is anybody's."""
        time.sleep(max(0.0, seconds - self._late))


class Replay:
    """What a recorded verifier says of histories."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._pauses = Pauses()
        self._histories: WeakKeyDictionary[KvCache, list[int]] = WeakKeyDictionary()
        self._prompts = {prompt: place for place, prompt in enumerate(record.prompts)}
        self._sizes = sorted({len(prompt) for prompt in record.prompts})
        self.rows: list[tuple[int, Tokens]] | None = None
        """Of the forward under way, by row: which prompt, and the history with the row's token."""

    def begin(self, feeds: Sequence[Feed]) -> None:
        """Tells whether this forward is replayed."""
        rows: list[tuple[int, Tokens]] = []
        for feed in feeds:
            history = self._histories.setdefault(feed.cache, [])
            before = feed.cache.length
            history[before:] = feed.token_ids
            place = self._place(history)
            if place is not None:
                rows += [(place, tuple(history[: end + 1])) for end in range(before, len(history))]
        total = sum(len(feed.token_ids) for feed in feeds)
        self.rows = rows if len(rows) == total else None

    def _place(self, history: Sequence[int]) -> int | None:
        found = (self._prompts.get(tuple(history[:size])) for size in self._sizes)
        return next((place for place in found if place is not None), None)

    def end(self, began: float) -> None:
        """Has a replayed forward that `began` then take its time: all of this among it."""
        if self.rows is not None:
            taken = time.perf_counter() - began
            self._pauses.pause(self._record.row_seconds[len(self.rows)] - taken)

    def run(self, batch: BatchOf) -> None:
        """In place of all layers."""
        tapped = batch.tapped
        if tapped.taps and self.rows is not None:
            own = [self._record.taps.index(tap) for tap in tapped.taps]
            for row, (place, history) in enumerate(self.rows):
                heat = self._heat(place, history)
                if heat is not None:
                    states = self._record.features[place][heat][len(history) - 1, own]
                    tapped.outputs[row] = torch.from_numpy(states)

    def logits(self, rows: Sequence[int], size: int) -> Logits:
        """Those of some rows, [n, `size`]; behind what is in no recorded answer of any token."""
        found = np.zeros((len(rows), size), np.float32)
        if self.rows is None:
            raise AssertionError("no forward is replayed")
        for to, row in zip(found, rows, strict=True):
            place, history = self.rows[row]
            coming = {
                stream[len(history)]
                for stream in self._record.streams[place]
                if stream[: len(history)] == history and len(stream) > len(history)
            }
            if len(coming) > 1:
                to[:] = self._record.parted[place]
            else:
                to[next(iter(coming), 0)] = LARGE
        return found

    def _heat(self, place: int, history: Tokens) -> int | None:
        """Of which recorded stream it is the beginning."""
        streams = self._record.streams[place]
        return next(
            (heat for heat, each in enumerate(streams) if each[: len(history)] == history), None
        )


def install(replay: Replay) -> None:
    """Has every compiled verifier of this process replay what was recorded."""
    forward, run, logits = (
        CompiledVerifier.forward_batch,
        CompiledVerifier._run,  # noqa: SLF001 what computes is replaced
        CompiledVerifier._logits,  # noqa: SLF001
    )

    def own_forward(self: CompiledVerifier, feeds: Sequence[Feed]) -> list[Output]:
        began = time.perf_counter()
        replay.begin(feeds)
        found = forward(self, feeds)
        replay.end(began)
        return found

    def own_run(
        self: CompiledVerifier, batch: BatchOf, caches: Any, counts: Any, firsts: Any
    ) -> None:
        if replay.rows is None:
            run(self, batch, caches, counts, firsts)
        else:
            replay.run(batch)

    def own_logits(self: CompiledVerifier, batch: BatchOf, rows: Sequence[int]) -> Logits:
        if replay.rows is None:
            return logits(self, batch, rows)
        return replay.logits(rows, self.info.vocabulary_size)

    CompiledVerifier.forward_batch = own_forward  # type: ignore[method-assign]
    CompiledVerifier._run = own_run  # type: ignore[method-assign]  # noqa: SLF001
    CompiledVerifier._logits = own_logits  # type: ignore[method-assign]  # noqa: SLF001


def main() -> None:
    """Runs the command that follows the folder."""
    program, folder, *command = sys.argv
    install(Replay(Record.load(Path(folder))))
    sys.argv = [program, *command]
    fleet()


if __name__ == "__main__":
    main()

"""Answers of a verifier that are known before: what replays them reads no weights.

Two nodes of one machine share its way to the memory, and each is slower while the other computes.
Two machines have nothing of that. So `scripts.bench.recorded_node` stands in for the near one: its
forwards take as long as the verifier's took alone, and say what that said.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.features import Features
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from scripts.bench.draft_forwards import answer

DTYPE = "bfloat16"
TIMES = 9
"""Forwards of each number of rows that are timed."""

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Prompts, each with what is said behind it greedily and at a temperature.

    `streams[i][heat]` is prompt and answer, of which `prompts[i]` is the beginning. Behind the
    tokens that both have `parted[i]` [vocabulary] are the logits: elsewhere the history tells which
    of both it is. `features[i][heat]` [n, taps, hidden] are hidden states at the layers `taps`.
    `row_seconds[n]` is what a forward of n rows takes.
    """

    prompts: list[Tokens]
    streams: list[list[Tokens]]
    parted: list[Logits]
    features: list[list[Features]]
    taps: tuple[int, ...]
    row_seconds: list[float]

    def save(self, folder: Path) -> None:
        """Writes it."""
        plain = {
            "prompts": self.prompts,
            "streams": self.streams,
            "taps": self.taps,
            "row_seconds": self.row_seconds,
        }
        (folder / "record.json").write_text(json.dumps(plain))
        for i, logits in enumerate(self.parted):
            np.save(folder / f"logits_{i}.npy", logits)
        for i, both in enumerate(self.features):
            for heat, found in enumerate(both):
                np.save(folder / f"features_{i}_{heat}.npy", found)

    @classmethod
    def load(cls, folder: Path) -> Record:
        """What `save` wrote."""
        plain = json.loads((folder / "record.json").read_text())
        streams = [[tuple(each) for each in both] for both in plain["streams"]]
        return cls(
            [tuple(prompt) for prompt in plain["prompts"]],
            streams,
            [np.load(folder / f"logits_{i}.npy") for i in range(len(streams))],
            [
                [np.load(folder / f"features_{i}_{heat}.npy") for heat in range(len(both))]
                for i, both in enumerate(streams)
            ],
            tuple(plain["taps"]),
            plain["row_seconds"],
        )


def record(
    model: str,
    questions: Sequence[str],
    heats: Sequence[SamplingParameters],
    count: int,
    taps: Tokens,
) -> Record:
    """Has the model answer, in one thread of this process, when nothing else computes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        folder = resolve_model(model, dtype=DTYPE)
        codec = TextCodec.from_folder(folder.path)
        verifier = load_verifier(folder, backend="torch", dtype=DTYPE)
        prompts = [
            tuple(codec.tokens_for_chat([{"role": "user", "content": each}])) for each in questions
        ]
        stops = set(codec.stop_token_ids)
        streams = [
            [_said(verifier, prompt, heat, stops, count) for heat in heats] for prompt in prompts
        ]
        return Record(
            prompts,
            streams,
            [_read(verifier, _common(both), ())[0][-1] for both in streams],
            [[_read(verifier, each, taps)[1] for each in both] for both in streams],
            taps,
            [0.0, *(_seconds(verifier, rows) for rows in range(1, verifier.info.width + 1))],
        )
    finally:
        torch.set_num_threads(before)


def _said(
    verifier: Verifier, prompt: Tokens, heat: SamplingParameters, stops: set[int], count: int
) -> Tokens:
    said, cache = answer(verifier, prompt, heat, stops, count)
    cache.release()
    return (*prompt, *said)


def _common(streams: Sequence[Tokens]) -> Tokens:
    first, *others = streams
    size = next(
        (
            at
            for at, token in enumerate(first)
            if any(each[at : at + 1] != (token,) for each in others)
        ),
        len(first),
    )
    return first[:size]


def _read(verifier: Verifier, tokens: Tokens, taps: Tokens) -> tuple[Logits, Features]:
    """Logits [n, vocabulary] of the last piece, and all hidden states [tokens, taps, hidden]."""
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=len(tokens)))
    widest = verifier.row_counts[-1]
    seen: list[Features] = []
    for first in range(0, len(tokens), widest):
        piece = tokens[first : first + widest]
        (found,) = verifier.forward_batch([Feed(cache, piece, want_logits=True, taps=taps)])
        if found.features is not None:
            seen.append(found.features)
    cache.release()
    if found.logits is None:
        raise AssertionError("a forward gave no logits, which were asked for")
    return found.logits, np.concatenate(seen) if seen else np.empty((0, 0, 0), np.float32)


def _seconds(verifier: Verifier, rows: int) -> float:
    """Of a forward of so many rows behind as many tokens as a prompt has."""
    before = verifier.row_counts[-1]
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=before + rows * TIMES))
    verifier.forward(cache, [1] * before, want_logits=False)
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        verifier.forward(cache, [1] * rows, want_logits=True)
        taken.append(time.perf_counter() - began)
    cache.release()
    return statistics.median(taken)

"""A chat model's own answers to prompts, which a drafter is distilled on.

    python -m scripts.train.answers --target MODEL --prompts PROMPTS.npz ASKED.npz --out ROWS

Half of them greedy, half at temperature 0.7; `--times 2` answers each prompt both ways. A part of
the chats goes on: a person asks again, and the row is the second answer behind all that came
before. A batch is a function of (seed, its number): started again, a run goes on behind the last
batch. Batches come in random order, so that one that is ended by `--seconds` has prompts of all
lengths.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from scripts.train.answering import answer
from scripts.train.rows import FIELDS, RowBatch, write_batch

TEMPERATURES = (0.0, 0.7)
SECOND_TURNS = 0.3
"""Of the answers to chats that ended by themselves in time."""
FIRST_TURNS_SHARE = 0.85
"""Of the time that there is."""
LONGEST_FIRST_TURN = 300
"""Tokens of what a second turn goes on from."""
FOLLOW_UPS = (
    "Can you give an example?",
    "Explain that in more detail.",
    "Now say it in two sentences.",
    "Why is that?",
    "What should I do next?",
    "Write that as a list.",
    "Is there anything else I should know?",
    "I do not understand. Say it in other words.",
)


@dataclass(frozen=True)
class Prompts:
    """What `scripts.train.prompts` and `scripts.train.asked` wrote."""

    rows: list[np.ndarray]
    kinds: np.ndarray
    held_out: np.ndarray
    """Whether a prompt is not to be trained on."""

    @classmethod
    def read(cls, *paths: Path) -> Prompts:
        """From their files, in this order."""
        rows: list[np.ndarray] = []
        kinds, held_out = [], []
        for path in paths:
            with np.load(path) as file:
                cuts = np.cumsum(file["lengths"])[:-1]
                own = np.split(file["tokens"], cuts)
                rows += [row.astype(np.int64) for row in own]
                kinds.append(file["kinds"])
                held_out.append(np.arange(len(own)) >= len(own) - int(file["held_out"]))
        return cls(rows, np.concatenate(kinds), np.concatenate(held_out))


@dataclass(frozen=True)
class Size:
    """How much is answered together."""

    most: int
    """Tokens of an answer."""
    rows: int
    places: int
    """Positions whose keys and values are held: of each row its batch's longest, answered."""

    def batches(self, lengths: Sequence[int]) -> list[np.ndarray]:
        """Indices by batch, of prompts of like lengths."""
        found: list[list[int]] = [[]]
        for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
            count = len(found[-1]) + 1
            if count > self.rows or (
                count > 1 and count * (lengths[index] + self.most) > self.places
            ):
                found.append([])
            found[-1].append(index)
        return [np.asarray(batch) for batch in found if batch]


@dataclass(frozen=True)
class Work:
    """One batch to be answered; the same prompts answered again have the other temperatures."""

    index: np.ndarray
    number: int
    """Of these prompts among all."""
    again: bool


def planned(prompts: Prompts, size: Size, seed: int, times: int) -> list[Work]:
    """What is held out first, then the rest in random order, all once before any again."""
    sides = [np.flatnonzero(prompts.held_out), np.flatnonzero(~prompts.held_out)]
    cut = [
        [side[batch] for batch in size.batches([len(prompts.rows[index]) for index in side])]
        for side in sides
    ]
    rng = np.random.Generator(np.random.Philox(key=[seed, 1 << 41]))
    cut[1] = [cut[1][at] for at in rng.permutation(len(cut[1]))]
    batches = [*cut[0], *cut[1]]
    return [
        Work(index, number, again=turn % 2 == 1)
        for turn in range(times)
        for number, index in enumerate(batches)
    ]


def follow_up(
    tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator, row: np.ndarray
) -> np.ndarray:
    """A chat that goes on behind `row`, which ended its turn."""
    words = FOLLOW_UPS[int(rng.integers(len(FOLLOW_UPS)))]
    turn = f"\n<|im_start|>user\n{words}<|im_end|>\n<|im_start|>assistant\n"
    asked = tokenizer.encode(turn, add_special_tokens=False)
    return np.concatenate([row, np.asarray(asked, np.int64)])


def _seed(rng: np.random.Generator) -> int:
    """For the draws of one call, which are the device's own."""
    return int(rng.integers(1 << 62))


def packed(
    rows: Sequence[np.ndarray], prompts: Sequence[int], kinds: np.ndarray, heat: np.ndarray
) -> RowBatch:
    """Rows of different lengths, filled with zeros behind their ends."""
    lengths = np.asarray([len(row) for row in rows], np.int32)
    tokens = np.zeros((len(rows), int(lengths.max())), np.int32)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = row
    return RowBatch(
        tokens,
        np.asarray(prompts, np.int32),
        lengths,
        kinds.astype(np.int8),
        heat.astype(np.float32),
        np.zeros(len(rows), np.bool_),
    )


@dataclass(frozen=True)
class Asked:
    """Prompts, and how each is answered; n of them."""

    rows: list[np.ndarray]
    kinds: np.ndarray
    heat: np.ndarray
    held_out: np.ndarray


class Answerer:
    """A model that answers batches, and writes them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(options.target)
        model = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.bfloat16)
        self._model = model.to(options.device).eval()
        ends = model.config.eos_token_id, self._tokenizer.convert_tokens_to_ids("<|endoftext|>")
        self._stops = sorted(set(ends))
        self._chat = self._tokenizer.convert_tokens_to_ids("<|im_start|>")
        self._size = Size(options.most, options.rows, options.places)
        self._seed, self._out = options.seed, options.out
        self._end = time.monotonic() + options.seconds if options.seconds else math.inf
        self._first_end = self._end - (1 - FIRST_TURNS_SHARE) * (options.seconds or 0)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self._seed, number]))

    def _write(self, path: Path, asked: Asked, rng: np.random.Generator) -> None:
        said = answer(self._model, asked.rows, asked.heat, self._size.most, self._stops, _seed(rng))
        batch = packed(said, [len(each) for each in asked.rows], asked.kinds, asked.heat)
        batch.held_out[:] = asked.held_out
        write_batch(path, batch)

    def first_turns(self, prompts: Prompts, times: int) -> None:
        """Answer `prompts`, as many as there is time for."""
        work = planned(prompts, self._size, self._seed, times)
        for number, each in enumerate(track(work, description="answers")):
            path = self._out / f"rows-{number:04d}.npz"
            if path.exists():
                continue
            if time.monotonic() > self._first_end:
                break
            rng = self._rng(each.number)
            heat = rng.choice(TEMPERATURES, size=len(each.index))
            if each.again:
                heat = sum(TEMPERATURES) - heat
            rows = [prompts.rows[index] for index in each.index]
            asked = Asked(rows, prompts.kinds[each.index], heat, prompts.held_out[each.index])
            self._write(path, asked, self._rng((1 << 42) + number))

    def second_turns(self) -> None:
        """Answer what people ask behind some of the answers that are there."""
        asked = self._asked_again()
        for number, index in enumerate(self._size.batches([len(row) for row in asked.rows])):
            path = self._out / f"rows-again-{number:04d}.npz"
            if path.exists():
                continue
            if time.monotonic() > self._end:
                break
            part = Asked(
                [asked.rows[at] for at in index],
                asked.kinds[index],
                asked.heat[index],
                asked.held_out[index],
            )
            self._write(path, part, self._rng((1 << 44) + number))

    def _asked_again(self) -> Asked:
        rows: list[np.ndarray] = []
        # Where there was no time for any batch, nobody asks again.
        kinds, heat, held_out = [np.zeros(0, np.int8)], [np.zeros(0)], [np.zeros(0, np.bool_)]
        for path in sorted(self._out.glob("rows-[0-9]*.npz")):
            rng = self._rng((1 << 43) + int(path.stem.removeprefix("rows-")))
            with np.load(path) as file:
                batch = RowBatch(*(file[name] for name in FIELDS))
            last = batch.tokens[np.arange(len(batch.tokens)), batch.lengths - 1]
            goes_on = (batch.tokens[:, 0] == self._chat) & (batch.lengths <= LONGEST_FIRST_TURN)
            goes_on &= last == self._model.config.eos_token_id
            goes_on &= rng.random(len(last)) < SECOND_TURNS
            index = np.flatnonzero(goes_on)
            rows += [
                follow_up(self._tokenizer, rng, batch.tokens[at, : batch.lengths[at]])
                for at in index
            ]
            kinds.append(batch.kinds[index])
            heat.append(rng.choice(TEMPERATURES, size=len(index)))
            held_out.append(batch.held_out[index])
        return Asked(rows, *(np.concatenate(part) for part in (kinds, heat, held_out)))


def main(arguments: list[str] | None = None) -> None:
    """Write the batches that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--target", type=Path, required=True, help="the verifier's folder")
    add("--prompts", type=Path, nargs="+", required=True)
    add("--out", type=Path, required=True)
    add("--rows", type=int, default=64, help="of a batch, at most")
    add("--places", type=int, default=1 << 16, help="of a batch's keys and values, at most")
    add("--most", type=int, default=288, help="tokens of an answer")
    add("--times", type=int, default=1, help="a prompt is answered")
    add("--seconds", type=float, help="begin no batch later")
    add("--seed", type=int, default=1)
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    answerer = Answerer(options)
    answerer.first_turns(Prompts.read(*options.prompts), options.times)
    answerer.second_turns()


if __name__ == "__main__":
    main()

"""A chat model's own answers to prompts, which a drafter is distilled on.

    python -m scripts.train.answers --target MODEL --prompts PROMPTS.npz --out ROWS

Half of them greedy, half at temperature 0.7. A part of the chats goes on: a person asks again, and
the row is the second answer behind all that came before. A batch is a function of (seed, its
number): started again, a run goes on behind the last batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from scripts.train.answering import answer
from scripts.train.rows import RowBatch, write_batch

TEMPERATURES = (0.0, 0.7)
SECOND_TURNS = 0.3
"""Of the answers to chats that ended by themselves in time."""
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
    """What `scripts.train.prompts` wrote; the last `held_out` are not to be trained on."""

    rows: list[np.ndarray]
    kinds: np.ndarray
    held_out: int

    @classmethod
    def read(cls, path: Path) -> Prompts:
        """From its file."""
        with np.load(path) as file:
            cuts = np.cumsum(file["lengths"])[:-1]
            rows = [row.astype(np.int64) for row in np.split(file["tokens"], cuts)]
            return cls(rows, file["kinds"], int(file["held_out"]))

    def batches(self, size: int, *, held_out: bool) -> list[np.ndarray]:
        """Indices by batch, of prompts of like lengths, from one side of the split."""
        first = len(self.rows) - self.held_out
        side = range(first, len(self.rows)) if held_out else range(first)
        order = sorted(side, key=lambda index: len(self.rows[index]))
        return [np.asarray(order[at : at + size]) for at in range(0, len(order), size)]


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
    rows: Sequence[np.ndarray], prompts: Sequence[int], kinds: Sequence[int], heat: np.ndarray
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
        np.asarray(kinds, np.int8),
        heat.astype(np.float32),
        np.zeros(len(rows), np.bool_),
    )


def main(arguments: list[str] | None = None) -> None:
    """Write the batches that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True, help="the verifier's folder")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=64, help="of a batch")
    parser.add_argument("--most", type=int, default=288, help="tokens of an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    model = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.bfloat16)
    model = model.to(options.device).eval()
    prompts = Prompts.read(options.prompts)
    stops = {model.config.eos_token_id, tokenizer.convert_tokens_to_ids("<|endoftext|>")}
    chat = tokenizer.convert_tokens_to_ids("<|im_start|>")
    work = [
        (held_out, index)
        for held_out in (True, False)
        for index in prompts.batches(options.rows, held_out=held_out)
    ]
    for number, (held_out, index) in enumerate(track(work, description="answers")):
        path = options.out / f"rows-{number:04d}.npz"
        if path.exists():
            continue
        rng = np.random.Generator(np.random.Philox(key=[options.seed, number]))
        asked = [prompts.rows[each] for each in index]
        kinds = prompts.kinds[index].tolist()
        heat = rng.choice(TEMPERATURES, size=len(asked))
        said = answer(model, asked, heat, options.most, sorted(stops), _seed(rng))
        lengths = [len(each) for each in asked]
        for row, was in enumerate(said):
            goes_on = asked[row][0] == chat and len(was) <= LONGEST_FIRST_TURN
            if goes_on and was[-1] == model.config.eos_token_id and rng.random() < SECOND_TURNS:
                asked.append(follow_up(tokenizer, rng, was))
                kinds.append(kinds[row])
        second = asked[len(said) :]
        if second:
            more = rng.choice(TEMPERATURES, size=len(second))
            said += answer(model, second, more, options.most, sorted(stops), _seed(rng))
            lengths += [len(each) for each in second]
            heat = np.concatenate([heat, more])
        batch = packed(said, lengths, kinds, heat)
        batch.held_out[:] = held_out
        write_batch(path, batch)


if __name__ == "__main__":
    main()

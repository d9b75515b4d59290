"""The verifier's own outputs, which a drafter is distilled on.

    python -m scripts.train.rows --target engine/shipped/tiny --out ROWS

Prompts are random stretches of the training text; the verifier continues them, greedily or at a
temperature. What a drafter has to guess is what its verifier says, so nothing else is a label.
A batch is a function of (seed, its number): started again, a run goes on behind the last batch.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.cache_utils import DynamicCache

import scripts.train.python_corpus as python_corpus

PROMPT_LENGTHS = (16, 32, 48, 64, 96, 128, 192)
TEMPERATURES = (0.0, 0.0, 0.0, 0.7, 0.7, 1.0)
"""Drawn evenly for each row; 0 is greedy."""
RANDOM_PROMPT_SHARE = 0.03
"""Rows whose prompt is random ids."""


@dataclass(frozen=True)
class RowBatch:
    """Rows of one batch."""

    tokens: np.ndarray
    """Ids, int32 of shape (rows, length)."""
    prompts: np.ndarray
    """Tokens of each row's prompt, int32 of shape (rows,)."""
    lengths: np.ndarray
    """Tokens of each row; what lies behind is nothing, int32 of shape (rows,)."""
    kinds: np.ndarray
    """What each row's prompt asks for, a number of its own script, int8 of shape (rows,)."""
    temperatures: np.ndarray
    """0 is greedy, float32 of shape (rows,)."""
    held_out: np.ndarray
    """Whether a row is not trained on, bool of shape (rows,)."""

    @classmethod
    def of_one_length(
        cls, tokens: np.ndarray, prompts: np.ndarray, temperatures: np.ndarray
    ) -> RowBatch:
        """Rows [rows, length] of one kind, all whole."""
        lengths = np.full(len(tokens), tokens.shape[1], np.int32)
        kinds = np.zeros(len(tokens), np.int8)
        held_out = np.zeros(len(tokens), np.bool_)
        return cls(tokens, prompts, lengths, kinds, temperatures.astype(np.float32), held_out)


FIELDS = tuple(each.name for each in fields(RowBatch))


def write_batch(path: Path, batch: RowBatch) -> None:
    """Write `batch` to `path`, whole or not at all."""
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **vars(batch))
    partial.rename(path)


def read_rows(folder: Path) -> RowBatch:
    """All rows in `folder`, in the order of their batches.

    Raises:
        FileNotFoundError: there are none.
    """
    paths = sorted(folder.glob("rows-*.npz"))
    paths = [path for path in paths if not path.name.endswith(".partial.npz")]
    if not paths:
        message = f"no rows in {folder}: run scripts/train/rows.py first"
        raise FileNotFoundError(message)
    batches = [dict(np.load(path)) for path in paths]
    longest = max(batch["tokens"].shape[1] for batch in batches)
    for batch in batches:
        tokens = batch["tokens"]
        batch["tokens"] = np.pad(tokens, ((0, 0), (0, longest - tokens.shape[1])))
    return RowBatch(*(np.concatenate([batch[name] for batch in batches]) for name in FIELDS))


def draw_prompts(
    rng: np.random.Generator, code: np.ndarray, rows: int, vocabulary: int
) -> np.ndarray:
    """Prompts of one random length, int64 of shape (rows, length)."""
    length = int(rng.choice(PROMPT_LENGTHS))
    starts = rng.integers(code.size, size=rows)
    prompts = np.take(code, starts[:, None] + np.arange(length), mode="wrap").astype(np.int64)
    strange = rng.random(rows) < RANDOM_PROMPT_SHARE
    prompts[strange] = rng.integers(vocabulary, size=(int(strange.sum()), length))
    return prompts


@torch.inference_mode()
def continue_prompts(
    model: PreTrainedModel,
    prompts: np.ndarray,
    temperatures: np.ndarray,
    length: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Rows of `length` tokens that begin with `prompts` (rows, n); temperature 0 is greedy."""
    device = model.device
    rows = torch.from_numpy(prompts).to(device)
    sampled = torch.from_numpy(temperatures > 0).to(device)
    heat = torch.from_numpy(np.where(temperatures > 0, temperatures, 1.0)).to(device).float()
    cache = DynamicCache(config=model.config)
    fed = rows
    for _ in range(length - prompts.shape[1]):
        out = model(input_ids=fed, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits = out.logits[:, -1].float()
        # Gumbel-max: the likeliest token after adding noise is a sample.
        noise = -np.log(-np.log(rng.random(tuple(logits.shape), dtype=np.float32) + 1e-20) + 1e-20)
        noisy = logits / heat[:, None] + torch.from_numpy(noise).to(device)
        fed = torch.where(sampled, noisy.argmax(-1), logits.argmax(-1))[:, None]
        rows = torch.cat([rows, fed], dim=1)
    return rows.cpu().numpy()


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--target", type=Path, required=True, help="the verifier's folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--batches", type=int, default=32)
    parser.add_argument("--rows", type=int, default=128, help="of a batch")
    parser.add_argument("--length", type=int, default=512, help="tokens of a row")
    parser.add_argument("--held-out", type=int, default=64, help="rows of the last batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Write the batches that are not there yet."""
    options = parse_options(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    model = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.float32)
    model = model.to(options.device).eval()
    training, _ = python_corpus.split(python_corpus.read_corpus(options.corpus))
    code = python_corpus.encode(tokenizer, training)
    for number in track(range(options.batches), description="rows"):
        path = options.out / f"rows-{number:04d}.npz"
        if path.exists():
            continue
        rng = np.random.Generator(np.random.Philox(key=[options.seed, number]))
        prompts = draw_prompts(rng, code, options.rows, model.config.vocab_size)
        heat = rng.choice(TEMPERATURES, size=options.rows)
        rows = continue_prompts(model, prompts, heat, options.length, rng)
        counts = np.full(options.rows, prompts.shape[1], dtype=np.int32)
        batch = RowBatch.of_one_length(rows.astype(np.int32), counts, heat)
        if number == options.batches - 1:
            batch.held_out[-options.held_out :] = True
        write_batch(path, batch)


if __name__ == "__main__":
    main()

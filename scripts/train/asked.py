"""Prompts that a chat model asks itself: what people may say, as it has learned it.

    python -m scripts.train.asked --target MODEL --out ASKED.npz

Behind the opening of a person's turn a chat model goes on with what a person would say (Magpie: Xu
et al., 2024). No template has as many subjects and forms. A batch is a function of (seed, its
number); what does not end in time, is not words, or was asked before is left out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from scripts.train.answering import answer
from scripts.train.prompts import ASKED, LONGEST, rendered, write_prompts

TEMPERATURE = 0.9
SHORTEST = 8
"""Characters."""
MARK = "\x00"


def opening(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """Ids of a chat up to where a person begins to speak."""
    before, _ = rendered(tokenizer, MARK).split(MARK)
    return np.asarray(tokenizer.encode(before, add_special_tokens=False), np.int64)


def question(
    tokenizer: PreTrainedTokenizerBase, said: np.ndarray, stops: list[int]
) -> np.ndarray | None:
    """The prompt that asks what was `said` behind the opening, or None where that is nothing."""
    if not len(said) or said[-1] not in stops:
        return None
    words = str(tokenizer.decode(said[:-1])).strip()
    # A part of a character is none.
    unwanted = ["\ufffd", *tokenizer.all_special_tokens]
    if len(words) < SHORTEST or any(each in words for each in unwanted):
        return None
    ids = tokenizer.encode(rendered(tokenizer, words), add_special_tokens=False)
    return np.asarray(ids, np.int64) if len(ids) <= LONGEST else None


def main(arguments: list[str] | None = None) -> None:
    """Write the prompts, those held out last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--target", type=Path, required=True, help="the verifier's folder")
    add("--out", type=Path, required=True)
    add("--batches", type=int, default=100)
    add("--rows", type=int, default=64, help="of a batch")
    add("--held-out", type=int, default=256)
    add("--seconds", type=float, help="begin no batch later")
    add("--seed", type=int, default=1)
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    model = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.bfloat16)
    model = model.to(options.device).eval()
    begin, stops = opening(tokenizer), [model.config.eos_token_id]
    heat = np.full(options.rows, TEMPERATURE)
    found: dict[bytes, np.ndarray] = {}
    started = time.monotonic()
    for number in track(range(options.batches), description="questions"):
        if options.seconds and time.monotonic() - started > options.seconds:
            break
        most = LONGEST - len(begin)
        rows = [begin] * options.rows
        for row in answer(model, rows, heat, most, stops, (options.seed << 20) + number):
            made = question(tokenizer, row[len(begin) :], stops)
            if made is not None:
                found.setdefault(made.tobytes(), made)
    prompts = list(found.values())
    if len(prompts) <= options.held_out:
        parser.error(
            f"{len(prompts)} prompts, and {options.held_out} are to be held out: more rows"
        )
    write_prompts(options.out, prompts, [ASKED] * len(prompts), options.held_out)


if __name__ == "__main__":
    main()

"""Measure a model folder: bits per byte on held-out files, and recall by context and depth.

    python -m scripts.eval.recall --model engine/shipped/tiny

Writes `evaluation.json` into the folder and refreshes the figures of its model card. Each recall
rung asks the same cases twice: with full attention, and with the sink and window that a verifier
without restoration keeps.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import scripts.train.python_corpus as python_corpus
from scripts.eval.bits import bits_per_byte
from scripts.eval.recall_measure import Budget, greedy_hits, wilson_interval
from scripts.eval.recall_task import RecallCase, RecallFormat, recall_case, recall_format
from scripts.train.card import EVALUATION_NAME, write_card
from scripts.train.export import WEIGHTS_NAME, file_sha256, machine

CONTEXTS = (128, 256, 512, 1000, 2000)
FACT_COUNTS = (1, 4)
DEPTH_BANDS = 5


@dataclass(frozen=True)
class Rung:
    """One sort of case: a context length and how many facts lie in it."""

    context_tokens: int
    facts: int

    def cases(
        self, form: RecallFormat, code: np.ndarray, seed: int, count: int
    ) -> list[RecallCase]:
        """The rung's first `count` cases; a longer list begins with the shorter one."""
        rng = np.random.Generator(np.random.Philox(key=[seed, self.context_tokens * self.facts]))
        return [recall_case(rng, form, code, self.context_tokens, self.facts) for _ in range(count)]


def summarise(cases: list[RecallCase], hits: np.ndarray, budget: Budget | None) -> dict[str, Any]:
    """Counts and the Wilson 95 % interval, by depth too, and for facts outside the window."""
    bands = np.asarray([min(int(case.depth * DEPTH_BANDS), DEPTH_BANDS - 1) for case in cases])
    low, high = wilson_interval(int(hits.sum()), len(cases))
    result: dict[str, Any] = {
        "cases": len(cases),
        "hits": int(hits.sum()),
        "wilson_95": [round(low, 4), round(high, 4)],
        "by_depth": [
            {
                "from": band / DEPTH_BANDS,
                "to": (band + 1) / DEPTH_BANDS,
                "cases": int((bands == band).sum()),
                "hits": int(hits[bands == band].sum()),
            }
            for band in range(DEPTH_BANDS)
        ],
    }
    if budget is not None:
        evicted = np.asarray([case.fact_start + budget.window < case.prompt.size for case in cases])
        result["fact_evicted"] = {
            "cases": int(evicted.sum()),
            "hits": int(hits[evicted].sum()),
        }
    return result


def evaluate(folder: Path, corpus: Path, seed: int, count: int, budget: Budget) -> dict[str, Any]:
    """All figures of the model in `folder`, computed in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    form = recall_format(tokenizer)
    _, held_out = python_corpus.split(python_corpus.read_corpus(corpus))
    code = python_corpus.encode(tokenizer, held_out)
    begun = time.monotonic()
    attentions = {"full": None, "sink_window": budget}
    text = {
        name: asdict(bits_per_byte(model, tokenizer, held_out, kept))
        for name, kept in attentions.items()
    }
    rungs = []
    for facts in FACT_COUNTS:
        for context in CONTEXTS:
            rung = Rung(context, facts)
            cases = rung.cases(form, code, seed, count)
            entry: dict[str, Any] = asdict(rung)
            for name, kept in attentions.items():
                entry[name] = summarise(cases, greedy_hits(model, cases, kept), kept)
            rungs.append(entry)
            print(context, facts, entry["full"]["hits"], entry["sink_window"]["hits"], flush=True)
    return {
        "weights_sha256": file_sha256(folder / WEIGHTS_NAME),
        "held_out": text,
        "recall": rungs,
        "sink_tokens": budget.sink,
        "window_tokens": budget.window,
        "seed": seed,
        "wall_seconds": round(time.monotonic() - begun),
        "machine": machine(),
        "command": f"python -m scripts.eval.recall --cases {count} --seed {seed}"
        f" --sink {budget.sink} --window {budget.window}",
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", type=Path, default=Path("engine/shipped/tiny"))
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--cases", type=int, default=100, help="per rung")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    budget = Budget(options.sink, options.window)
    figures = evaluate(options.model, options.corpus, options.seed, options.cases, budget)
    text = json.dumps(figures, indent=2) + "\n"
    (options.model / EVALUATION_NAME).write_text(text, encoding="utf-8")
    write_card(options.model)


if __name__ == "__main__":
    main()

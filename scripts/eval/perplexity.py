"""Bits per byte of held-out text by context, for every way of keeping K/V.

    python -m scripts.eval.perplexity --out benchmarks/perplexity.json

Stretches of held-out Python code are read through this engine's verifier and
caches, teacher-forced: what each token costs given all before it. A band is a
range of positions, so that the costs of a band are those of tokens with about so
much context. Every strategy reads the same stretches; its cost over full
attention's is compared stretch by stretch. Writes JSON, and a table beside it.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer, PreTrainedTokenizerBase

import scripts.train.python_corpus as python_corpus
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier
from kakeya_fleet.engine.models.model_folder import resolve
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.kv_strategies import FULL, STRATEGIES, Caches
from scripts.bench.machine import command, machine, write_report
from scripts.eval.needle_table import perplexity_markdown
from scripts.eval.restorers import Restoring
from scripts.eval.teacher_forced import logits_of

BANDS = (0, 64, 128, 256, 512, 1024, 2048)
"""Positions at which a band ends and the next begins."""
FULL_NAME = FULL.name
METHOD = (
    "bits of the tokens predicted at the positions of a band, over the bytes of those tokens; "
    "over_full is the difference to full attention in bits per byte, stretch by stretch: mean and "
    "95 % interval by bootstrap over stretches"
)
RESAMPLES = 2000

Costs = NDArray[np.float64]


def token_bytes(tokenizer: PreTrainedTokenizerBase) -> NDArray[np.int64]:
    """UTF-8 bytes that each id stands for; a byte-level vocabulary spells one letter a byte.

    Special ones, such as the end of a text, stand for none.
    """
    special = set(tokenizer.all_special_ids)
    return np.asarray(
        [
            0 if index in special else len(tokenizer.convert_ids_to_tokens(index))
            for index in range(len(tokenizer))
        ],
        np.int64,
    )


def token_bits(logits: Logits, targets: Sequence[int]) -> Costs:
    """Bits [n] of each target given logits [n, vocabulary_size]."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    nats = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(targets)), targets]
    bits: Costs = nats / math.log(2)
    return bits


def bands(length: int) -> list[tuple[int, int]]:
    """The bands of stretches of `length` predicted tokens, the last one cut."""
    ends = [end for end in BANDS if end < length]
    return list(zip(ends, [*ends[1:], length], strict=True))


def mean_interval(values: Sequence[float], seed: int = 0) -> dict[str, object]:
    """Mean with its 95 % percentile bootstrap interval."""
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return {
        "mean": statistics.fmean(values),
        "interval_95": [means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]],
        "count": len(values),
    }


def summarise(
    bits: Mapping[str, Sequence[Costs]], sizes: Sequence[NDArray[np.int64]]
) -> dict[str, list[dict[str, Any]]]:
    """Bands by strategy; `bits` and the tokens' byte counts are one array a stretch."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, stretches in bits.items():
        found[name] = []
        for start, end in bands(len(sizes[0])):
            part = slice(start, end)
            own = [
                float(costs[part].sum() / size[part].sum())
                for costs, size in _pairs(stretches, sizes)
            ]
            full = [
                float(costs[part].sum() / size[part].sum())
                for costs, size in _pairs(bits[FULL_NAME], sizes)
            ]
            bytes_read = sum(int(size[part].sum()) for size in sizes)
            total = sum(float(costs[part].sum()) for costs in stretches)
            gaps = [one - other for one, other in zip(own, full, strict=True)]
            found[name].append(
                {
                    "from": start,
                    "to": end,
                    "bytes": bytes_read,
                    "bits_per_byte": total / bytes_read,
                    "over_full": None if name == FULL_NAME else mean_interval(gaps),
                }
            )
    return found


def _pairs(
    stretches: Sequence[Costs], sizes: Sequence[NDArray[np.int64]]
) -> list[tuple[Costs, NDArray[np.int64]]]:
    return list(zip(stretches, sizes, strict=True))


def stretches_of(code: NDArray[np.int32], count: int, length: int, seed: int) -> list[list[int]]:
    """Random stretches of `length` + 1 ids of the text."""
    rng = np.random.Generator(np.random.Philox(key=[seed, length]))
    starts = rng.integers(max(1, code.size - length - 1), size=count)
    return [code[start : start + length + 1].tolist() for start in starts]


def evaluate(arguments: argparse.Namespace) -> dict[str, Any]:
    """The report."""
    begun = time.monotonic()
    torch.set_num_threads(1)
    folder = resolve(arguments.verifier)
    verifier: Verifier = load_verifier(folder, backend="torch")
    settle(verifier)
    tokenizer = AutoTokenizer.from_pretrained(folder.path)
    _, held_out = python_corpus.split(python_corpus.read_corpus(arguments.corpus))
    code = python_corpus.encode(tokenizer, held_out)
    length = min(arguments.length, verifier.info.context_length)
    texts = stretches_of(code, arguments.stretches, length, arguments.seed)
    sizes_of = token_bytes(tokenizer)
    sizes = [sizes_of[text[1:]] for text in texts]
    names = [FULL_NAME, *(name for name in arguments.strategies if name != FULL_NAME)]
    bits: dict[str, list[Costs]] = {name: [] for name in names}
    with closing(Restoring(verifier, arguments.restorer, arguments.archive)) as restoring:
        caches = Caches(verifier, arguments.sink, arguments.window, restoring.restorers)
        for index, text in enumerate(texts):
            for name in names:
                with caches.opened(STRATEGIES[name], length) as cache:
                    logits = logits_of(verifier, cache, text[:-1])
                bits[name].append(token_bits(logits, text[1:]))
            print(f"stretch {index + 1} of {len(texts)}", file=sys.stderr)
        description = restoring.description
    info = verifier.info
    return {
        "command": command(__file__),
        "machine": machine(),
        "verifier": info.model_id,
        "weights_digest": info.weights_digest,
        "restorer": description,
        "sink_tokens": arguments.sink,
        "window_tokens": arguments.window,
        "stretches": len(texts),
        "tokens_a_stretch": length,
        "seed": arguments.seed,
        "bits_per_byte_is": METHOD,
        "strategies": summarise(bits, sizes),
        "wall_seconds": round(time.monotonic() - begun),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verifier", default="tiny")
    parser.add_argument("--restorer", default="tiny-dflash", help="whose learned map; none: ''")
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=None)
    parser.add_argument("--length", type=int, default=2048, help="predicted tokens of a stretch")
    parser.add_argument("--stretches", type=int, default=24)
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--archive", default="1GiB", help="bytes, address of a running one, local")
    parser.add_argument("--quick", action="store_true", help="two short stretches")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/perplexity.json"))
    arguments = parser.parse_args(words)
    if arguments.strategies is None:
        # The plumbing's check would say what the archive says.
        arguments.strategies = [
            name
            for name in STRATEGIES
            if "identity" not in name and (arguments.restorer or "projection" not in name)
        ]
    if arguments.quick:
        arguments.length, arguments.stretches = 150, 2
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Evaluates, and writes the report and its table."""
    arguments = parse(words)
    report = evaluate(arguments)
    write_report(arguments.out, report)
    table = perplexity_markdown(report)
    arguments.out.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()

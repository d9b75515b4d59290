"""What a drafted block costs its drafter, and a verifier the context vectors of it.

    OMP_NUM_THREADS=1 python -m scripts.bench.drafted_block

Milliseconds, medians and fastest, in this process: of a block behind contexts of some lengths,
and of the encoder, as it is served and by NumPy, in turn.
Before each measurement memory is read as a verifier's weights would be, so that caches hold
nothing of the drafter. Vectors and hidden states are random: that changes no times.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from kakeya_fleet.engine.backends import load_dflash
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.engine.models.model_folder import resolve
from scripts.bench.machine import command, machine, write_report

CONTEXTS = (64, 512, 2048)
ENCODED = (1, 4, 64)
READ_BYTES = 1 << 26

Timed = Callable[[], object]


def milliseconds(sides: Mapping[str, Timed], rounds: int) -> dict[str, dict[str, float]]:
    """Median and fastest of each side, in turns whose order is drawn; the first does not count."""
    rng = random.Random(0)
    passed = np.ones(READ_BYTES // 4, np.float32)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in rng.sample(list(sides), len(sides)):
            passed.sum()
            began = time.perf_counter()
            sides[name]()
            if number:
                found[name].append(1e3 * (time.perf_counter() - began))
    return {
        name: {"median": statistics.median(values), "fastest": min(values)}
        for name, values in found.items()
    }


def drafting(proposer: DFlashProposer, block: int, rounds: int) -> dict[str, object]:
    """Of a block of `block` tokens, by positions of context."""
    told: dict[str, object] = {}
    for context in CONTEXTS:
        state = proposer.open([1] * (context + 1))
        vectors = np.random.default_rng(0).standard_normal(
            (context, proposer.encoder.spec.width), np.float32
        )
        state.take_features(0, vectors)
        told[str(context)] = milliseconds({"block": partial(state.propose, (), block, 0)}, rounds)[
            "block"
        ]
    return told


def encoding(encoder: ContextEncoder, rounds: int) -> dict[str, object]:
    """Of the encoder and of NumPy's with the same weights, by positions."""
    by_numpy = ContextEncoder(encoder.weights)
    spec = encoder.spec
    told: dict[str, object] = {}
    for count in ENCODED:
        shape = (count, len(spec.taps), spec.hidden_size)
        states = np.random.default_rng(0).standard_normal(shape, np.float32)
        told[str(count)] = milliseconds(
            {"own": partial(encoder.encode, states), "numpy": partial(by_numpy.encode, states)},
            rounds,
        )
    return told


def main(words: Sequence[str] | None = None) -> int:
    """Measures, and writes or prints the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--drafter", default="smollm2-dflash", help="a shipped one, or a folder")
    parser.add_argument("--target", default="smollm2", help="the verifier that it is for")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--block", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path, help="a report, instead of the figures alone")
    asked = parser.parse_args(words)
    proposer = load_dflash(
        resolve(asked.drafter), resolve_model(asked.target, dtype=asked.dtype), dtype=asked.dtype
    )
    if not isinstance(proposer, DFlashProposer):
        raise SystemExit(f"{asked.drafter} is no DFlash drafter")
    figures = {
        "block_tokens": asked.block,
        "block_milliseconds": drafting(proposer, asked.block, asked.rounds),
        "encoder_milliseconds": encoding(proposer.encoder, asked.rounds),
    }
    if asked.out is not None:
        write_report(asked.out, {"command": command(__file__), "machine": machine(), **figures})
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

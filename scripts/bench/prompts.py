"""Prompts of 2,000 tokens at the shapes of real models, here and in the libraries beside.

    python -m scripts.bench.prompts --out benchmarks/prompts.json
    python -m scripts.bench.prompts --llama-cpp VENV/bin/python

Random weights in bfloat16. All sides take turns in one run, each with a thread a core: this engine
in chunks of 64 tokens, as sessions read them, transformers with both of its caches, and llama.cpp,
where a Python that has xllamacpp is named, on a GGUF file of the same weights, by its own times.
Rivals have processes of their own, and the environment as it is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gguf.constants import GGMLQuantizationType

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.bench.asked_process import WAITING
from scripts.bench.decode_models import SHAPES, checkpoint_folder, random_checkpoint
from scripts.bench.machine import command, machine, write_report
from scripts.bench.random_gguf import write_random
from scripts.bench.speed_sides import (
    CACHES,
    CHUNK,
    PROMPT,
    Side,
    llama_side,
    measured,
    own_side,
    transformers_side,
)

DTYPE = "bfloat16"
OWN = "kakeya"
WHAT = "prefill"


def sides(checkpoint: Path, python: Path | None, folder: Path, stack: ExitStack) -> dict[str, Side]:
    """All of them, by name."""
    verifier = load_verifier(ModelFolder(checkpoint, checkpoint.name), backend="torch", dtype=DTYPE)
    found = {OWN: own_side(verifier)}
    for cache in CACHES:
        found[f"transformers, {cache} cache"] = transformers_side(checkpoint, DTYPE, cache, stack)
    if python is not None:
        file = folder / f"{checkpoint.name}.gguf"
        write_random(checkpoint, file, GGMLQuantizationType.BF16)
        found["llama.cpp BF16"] = llama_side(python, file, stack)
    return found


def over_fastest(tokens: Mapping[str, Mapping[str, Any]]) -> float:
    """Tokens a second of this engine over those of the fastest rival, medians."""
    speeds = {name: float(own[WHAT]["median"]) for name, own in tokens.items()}
    own = speeds.pop(OWN)
    return own / max(speeds.values())


def cell(model: str, python: Path | None, rounds: int, kept: Path | None) -> dict[str, Any]:
    """One shape's."""
    with (
        checkpoint_folder(kept) as parent,
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as stack,
    ):
        checkpoint = random_checkpoint(model, DTYPE, parent)
        found = sides(checkpoint, python, Path(folder), stack)
        tokens = measured(found, rounds, what=(WHAT,))
    return {
        "tokens_per_second": {name: own[WHAT] for name, own in tokens.items()},
        "over_fastest_rival": over_fastest(tokens),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=sorted(SHAPES), default=["Qwen3-0.6B"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-cpp", type=Path, help="a Python that has xllamacpp")
    parser.add_argument("--checkpoints", type=Path, help="keeps the random checkpoints there")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/prompts.json"))
    arguments = parser.parse_args(words)
    if WAITING not in os.environ:
        again = [sys.executable, "-m", "scripts.bench.prompts", *(words or sys.argv[1:])]
        os.execve(sys.executable, again, {**os.environ, WAITING: "PASSIVE"})
    by_model = {
        model: cell(model, arguments.llama_cpp, arguments.rounds, arguments.checkpoints)
        for model in arguments.models
    }
    report = {
        # Where that Python lies is nobody else's matter.
        "command": command(__file__).replace(str(arguments.llama_cpp), "PYTHON"),
        "machine": machine(),
        "dtype": DTYPE,
        "prompt_tokens": PROMPT,
        "chunk_tokens": CHUNK,
        "rounds": arguments.rounds,
        "threads_wait": os.environ.get(WAITING, ""),
        "by_model": by_model,
    }
    write_report(arguments.out, report)
    for model, own in by_model.items():
        for name, told in own["tokens_per_second"].items():
            print(f"{model}, {name}: {statistics.median(told['rounds']):.1f} tokens a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())

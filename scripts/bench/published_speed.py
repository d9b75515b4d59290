"""The published model here, in transformers, llama.cpp, mlx-lm: decoding, prompts, 16 at once.

    python -m scripts.bench.published_speed --out benchmarks/published_speed.json
    python -m scripts.bench.published_speed --llama-cpp VENV/bin/python

All sides take turns in one run, each with a thread a core: tokens a second of greedy decoding
behind 256 tokens, of a prompt of 2,000, and (here alone) of sixteen sessions in one forward.
llama.cpp is asked where a Python that has xllamacpp is named; it reads the published file, and
that model in the types BF16, Q8_0 and Q4_0. Its times are its own, ours those of whole calls.
mlx-lm has the checkpoint's own numbers and what it makes of them in 8 and 4 bits.
This process has threads wait as an agent has them (OMP_WAIT_POLICY, which is read once); rivals
have processes of their own, and the environment as it is.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from gguf.constants import GGMLQuantizationType

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.models.gguf.source import find_gguf
from scripts.bench.asked_process import WAITING
from scripts.bench.machine import command, machine, write_report
from scripts.bench.published_gguf import write_as
from scripts.bench.speed_sides import (
    CACHES,
    CONTEXT,
    DTYPES,
    PROMPT,
    TOGETHER,
    Side,
    llama_side,
    measured,
    mlx_side,
    own_side,
    shorter_prompts,
    transformers_side,
)

MODEL = "smollm2"
KINDS = (GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_0)
MLX_BITS = (0, 8, 4)
"""0 for none: the checkpoint's own numbers."""
WHAT = ("decode", "prefill", "together")


def sides(
    python: Path | None, folder: Path, stack: ExitStack, *, transformers: bool, mlx: bool
) -> dict[str, Side]:
    """All of them, by name."""
    model = resolve_model(MODEL)
    found = {}
    for weights in ("auto", "int8", "int4"):
        verifier = load_verifier(model, backend="torch", dtype="auto", weights=weights)
        found[f"kakeya {weights}"] = own_side(verifier)
    for dtype, cache in itertools.product(DTYPES, CACHES) if transformers else ():
        side = transformers_side(model.path, dtype, cache, stack)
        found[f"transformers {dtype}, {cache} cache"] = side
    for bits in MLX_BITS if mlx else ():
        name = f"mlx-lm {bits} bits" if bits else "mlx-lm bfloat16"
        found[name] = mlx_side(model.path, bits, stack)
    if python is not None:
        published = find_gguf(MODEL).path
        files = {"the published Q4_1": published}
        for kind in KINDS:
            files[kind.name] = folder / f"{kind.name}.gguf"
            write_as(published, files[kind.name], kind)
        for name, file in files.items():
            found[f"llama.cpp {name}"] = llama_side(python, file, stack)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-cpp", type=Path, help="a Python that has xllamacpp")
    parser.add_argument(
        "--no-transformers", action="store_true", help="which take most of the time"
    )
    parser.add_argument("--no-mlx", action="store_true", help="which is slow where it is no Mac")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/published_speed.json"))
    arguments = parser.parse_args(words)
    if WAITING not in os.environ:
        again = [sys.executable, "-m", "scripts.bench.published_speed", *(words or sys.argv[1:])]
        os.execve(sys.executable, again, {**os.environ, WAITING: "PASSIVE"})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = sides(
            arguments.llama_cpp,
            Path(folder),
            stack,
            transformers=not arguments.no_transformers,
            mlx=not arguments.no_mlx,
        )
        tokens = measured(found, arguments.rounds, what=WHAT)
    report = {
        # Where that Python lies is nobody else's matter.
        "command": command(__file__).replace(str(arguments.llama_cpp), "PYTHON"),
        "machine": machine(),
        "model": MODEL,
        "context_tokens": CONTEXT,
        "prompt_tokens": PROMPT,
        "shorter_prompts": shorter_prompts(found),
        "sessions_together": TOGETHER,
        "threads_wait": os.environ.get(WAITING, ""),
        "tokens_per_second": tokens,
    }
    write_report(arguments.out, report)
    for name, own in tokens.items():
        print(name, {what: round(each["median"], 1) for what, each in own.items()})  # type: ignore[index]
    return 0


if __name__ == "__main__":
    sys.exit(main())

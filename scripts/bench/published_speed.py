"""The published model here, in transformers and in llama.cpp: decoding, prompts, sixteen at once.

    python -m scripts.bench.published_speed --out benchmarks/published_speed.json
    python -m scripts.bench.published_speed --llama-cpp VENV/bin/python

All sides take turns in one run, each with a thread a core: tokens a second of greedy decoding
behind 256 tokens, of a prompt of 2,000, and (here alone) of sixteen sessions in one forward.
llama.cpp is asked where a Python that has xllamacpp is named; it reads the published file, and
that model in the types BF16 and Q8_0. Its times are its own, ours those of whole calls.
This process has threads wait as an agent has them (OMP_WAIT_POLICY, which is read once); rivals
have processes of their own, and the environment as it is.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from gguf.constants import GGMLQuantizationType

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.models.gguf.source import find_gguf
from kakeya_fleet.engine.sampling.choice import GREEDY, choose_token
from scripts.bench.asked_process import WAITING, Asked, llama_cpp
from scripts.bench.machine import command, machine, write_report
from scripts.bench.published_gguf import write_as

MODEL = "smollm2"
CONTEXT, DECODED = 256, 64
PROMPT = 2000
TOGETHER, STEPS_TOGETHER = 16, 12
TOKENS = [(37 * index) % 40_000 + 100 for index in range(PROMPT)]
"""Times do not depend on which."""
CHUNK = 64
DTYPES, CACHES = ("bfloat16", "float32"), ("dynamic", "static")
"""Of transformers."""


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: each gives tokens a second. `together` is None where it is not measured."""

    decode: Callable[[], float]
    prefill: Callable[[], float]
    together: Callable[[], float] | None = None


def own_side(verifier: Verifier) -> Side:
    """A verifier in this process, by its own forwards."""
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=PROMPT + CHUNK)

    @contextmanager
    def read(count: int, caches: int = 1) -> Iterator[list[object]]:
        own = [verifier.allocate(spec) for _ in range(caches)]
        for cache in own:
            for first in range(0, count, CHUNK):
                verifier.forward(
                    cache, TOKENS[first : min(first + CHUNK, count)], want_logits=False
                )
        yield list(own)
        for cache in own:
            cache.release()

    def decode() -> float:
        with read(CONTEXT) as (cache,):
            token, began = TOKENS[0], time.perf_counter()
            for position in range(CONTEXT, CONTEXT + DECODED):
                logits = verifier.forward(cache, [token], want_logits=True)  # type: ignore[arg-type]
                assert logits is not None
                token = choose_token(logits[0], GREEDY, position)
            return DECODED / (time.perf_counter() - began)

    def prefill() -> float:
        began = time.perf_counter()
        with read(PROMPT):
            return PROMPT / (time.perf_counter() - began)

    def together() -> float:
        with read(CONTEXT, TOGETHER) as caches:
            began = time.perf_counter()
            for _ in range(STEPS_TOGETHER):
                verifier.forward_batch([Feed(each, [7], want_logits=True) for each in caches])  # type: ignore[arg-type]
            return TOGETHER * STEPS_TOGETHER / (time.perf_counter() - began)

    return Side(decode, prefill, together)


def transformers_side(folder: Path, dtype: str, cache: str, stack: ExitStack) -> Side:
    """`generate`, with its default cache or the static one."""
    module = "scripts.bench.transformers_server"
    threads = str(torch.get_num_threads())
    rival = Asked([sys.executable, "-m", module, str(folder), dtype, cache, threads], stack)

    def asked(prompt: int, count: int) -> dict[str, float]:
        return rival({"prompt": TOKENS[:prompt], "count": count})

    def decode() -> float:
        few, many = (asked(CONTEXT, count)["seconds"] for count in (8, 8 + DECODED))
        return DECODED / (many - few)

    return Side(decode, lambda: PROMPT / asked(PROMPT, 1)["seconds"])


def llama_side(python: Path, file: Path, stack: ExitStack) -> Side:
    """llama.cpp's server on a file, by its own times."""
    rival = llama_cpp(python, file, torch.get_num_threads(), stack)

    def asked(prompt: int, count: int) -> dict[str, float]:
        found: dict[str, float] = rival({"prompt": TOKENS[:prompt], "count": count})["timings"]
        return found

    return Side(
        lambda: asked(CONTEXT, DECODED)["predicted_per_second"],
        lambda: asked(PROMPT, 1)["prompt_per_second"],
    )


def sides(
    python: Path | None, folder: Path, stack: ExitStack, *, transformers: bool
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
    if python is not None:
        published = find_gguf(MODEL).path
        files = {"the published Q4_1": published}
        for kind in (GGMLQuantizationType.BF16, GGMLQuantizationType.Q8_0):
            files[kind.name] = folder / f"{kind.name}.gguf"
            write_as(published, files[kind.name], kind)
        for name, file in files.items():
            found[f"llama.cpp {name}"] = llama_side(python, file, stack)
    return found


def measured(found: Mapping[str, Side], rounds: int) -> dict[str, dict[str, object]]:
    """Tokens a second, medians of rounds in which all sides take turns."""
    values: dict[str, dict[str, list[float]]] = {name: {} for name in found}
    for number in range(rounds + 1):
        for name, side in found.items():
            for what, call in (
                ("decode", side.decode),
                ("prefill", side.prefill),
                ("together", side.together),
            ):
                # The first round warms up.
                if call is not None and (told := call()) and number:
                    values[name].setdefault(what, []).append(told)
    return {
        name: {
            what: {"median": statistics.median(each), "rounds": each} for what, each in own.items()
        }
        for name, own in values.items()
    }


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
    parser.add_argument("--out", type=Path, default=Path("benchmarks/published_speed.json"))
    arguments = parser.parse_args(words)
    if WAITING not in os.environ:
        again = [sys.executable, "-m", "scripts.bench.published_speed", *(words or sys.argv[1:])]
        os.execve(sys.executable, again, {**os.environ, WAITING: "PASSIVE"})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        with_transformers = not arguments.no_transformers
        found = sides(arguments.llama_cpp, Path(folder), stack, transformers=with_transformers)
        tokens = measured(found, arguments.rounds)
    report = {
        # Where that Python lies is nobody else's matter.
        "command": command(__file__).replace(str(arguments.llama_cpp), "PYTHON"),
        "machine": machine(),
        "model": MODEL,
        "context_tokens": CONTEXT,
        "prompt_tokens": PROMPT,
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

"""What the key/value cache gains: generation with it, and with full recomputation.

    python -m scripts.bench.generation --compare --out benchmarks/generation.json
    python -m scripts.bench.generation --kv-cache
    python -m scripts.bench.generation --no-kv-cache

A session of the engine on the torch back end, greedy, no proposer. Without the
cache every forward reads the whole history again. `--compare` runs both sides in
one process, in turn, and fails when they disagree on a token.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import resolve
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from scripts.bench.machine import command, decile_ratio, machine, step_summary, write_report
from scripts.bench.process_memory import PEAK_IS, PeakMemory, allocation_peak
from scripts.support.recomputing import RecomputingVerifier

CACHED, RECOMPUTED = "kv_cache", "no_kv_cache"
FLAT = 1.1
"""The last tenth of the cached steps may take this much longer than the first."""
GOAL = 5.0


@dataclass(slots=True)
class Measured:
    """One side's figures, one entry a round."""

    first_token_seconds: list[float] = field(default_factory=list)
    steps: list[list[float]] = field(default_factory=list)
    cache_bytes: int = 0
    peak_memory_bytes: int | None = None
    peak_allocated_bytes: int = 0

    def summary(self) -> dict[str, object]:
        """For JSON; `step_seconds` is the median of each step over the rounds."""
        series = [statistics.median(step) for step in zip(*self.steps, strict=True)]
        return {
            "first_token_seconds_median": statistics.median(self.first_token_seconds),
            **step_summary([step for steps in self.steps for step in steps]),
            "last_tenth_over_first": decile_ratio(series),
            "cache_bytes": self.cache_bytes,
            "peak_memory_bytes": self.peak_memory_bytes,
            "peak_allocated_bytes": self.peak_allocated_bytes,
            "step_seconds": series,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What one generation said and took; `steps` are the seconds of all tokens but the first."""

    tokens: tuple[int, ...]
    first_token_seconds: float
    steps: list[float]
    cache_bytes: int


def answer(verifier: Verifier, prompt: Sequence[int], new_tokens: int) -> Answer:
    """A new session: the prompt, then `new_tokens` single-token steps."""
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=len(prompt) + new_tokens)
    began = time.perf_counter()
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    while PrefillTurn(session)():
        pass
    tokens: list[int] = []
    ends: list[float] = []
    for _ in range(new_tokens):
        tokens += VerifyTurn(session, Block([], GREEDY, 1))().step.committed
        ends.append(time.perf_counter())
    cache_bytes = session.memory_bytes
    session.end("closed")
    steps = [end - start for start, end in pairwise(ends)]
    return Answer(tuple(tokens), ends[0] - began, steps, cache_bytes)


def measure(
    verifiers: Mapping[str, Verifier], prompt: Sequence[int], arguments: argparse.Namespace
) -> dict[str, Measured]:
    """All rounds of all sides; raises SystemExit when two sides disagree on a token."""
    measured = {side: Measured() for side in verifiers}
    order = random.Random(arguments.seed)
    for round_index in range(-1, arguments.rounds):
        said: set[tuple[int, ...]] = set()
        for side in order.sample(sorted(verifiers), len(verifiers)):
            got = answer(verifiers[side], prompt, arguments.new_tokens)
            said.add(got.tokens)
            # Round -1 warms every side up.
            if round_index >= 0:
                measured[side].first_token_seconds.append(got.first_token_seconds)
                measured[side].steps.append(got.steps)
                measured[side].cache_bytes = got.cache_bytes
        if len(said) != 1:
            raise SystemExit("with and without the cache the tokens differ")
        print(f"round {round_index + 1} of {arguments.rounds}", file=sys.stderr)
    for side, verifier in verifiers.items():
        measure_memory(measured[side], verifier, prompt, arguments.new_tokens)
    return measured


def measure_memory(
    measured: Measured, verifier: Verifier, prompt: Sequence[int], new_tokens: int
) -> None:
    """Two more generations, whose times do not count: for the process and for the allocator."""
    drop_spares(verifier)
    gc.collect()
    with PeakMemory() as peak:
        answer(verifier, prompt, new_tokens)
    measured.peak_memory_bytes = peak.bytes
    drop_spares(verifier)
    measured.peak_allocated_bytes = allocation_peak(lambda: answer(verifier, prompt, new_tokens))


def drop_spares(verifier: Verifier) -> None:
    """Frees the slabs that earlier generations gave back: they would hide what one takes."""
    verifier.pool.budget_bytes = 0
    verifier.pool.budget_bytes = None


def comparison(sides: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """What the figures are about."""
    speeds = {side: figures["tokens_per_second_median"] for side, figures in sides.items()}
    cached, recomputed = speeds[CACHED], speeds[RECOMPUTED]
    flatness = sides[CACHED]["last_tenth_over_first"]
    if not isinstance(cached, float) or not isinstance(recomputed, float):
        raise TypeError("speeds are floats")
    if not isinstance(flatness, float):
        raise TypeError("a ratio is a float")
    return {
        "cached_over_recomputed": cached / recomputed,
        "goal": GOAL,
        "goal_met": cached / recomputed >= GOAL,
        "cached_last_tenth_over_first": flatness,
        "cached_is_flat": flatness <= FLAT,
        "tokens_identical": True,
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--kv-cache", action="store_true", help="with the cache; the default")
    mode.add_argument("--no-kv-cache", action="store_true", help="with full recomputation")
    mode.add_argument("--compare", action="store_true", help="both, in turn")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write JSON; else it is printed")
    return parser.parse_args()


def main() -> None:
    """Measures, and writes or prints JSON."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    verifier = load_verifier(resolve(arguments.model), dtype=arguments.dtype)
    verifiers: dict[str, Verifier] = {}
    if arguments.compare or not arguments.no_kv_cache:
        verifiers[CACHED] = verifier
    if arguments.compare or arguments.no_kv_cache:
        verifiers[RECOMPUTED] = RecomputingVerifier(verifier)
    draw = random.Random(arguments.seed)
    prompt = [draw.randrange(verifier.info.vocabulary_size) for _ in range(arguments.prompt_tokens)]
    measured = measure(verifiers, prompt, arguments)
    sides = {side: figures.summary() for side, figures in measured.items()}
    report: dict[str, object] = {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "dtype": arguments.dtype,
        "prompt_tokens": arguments.prompt_tokens,
        "new_tokens": arguments.new_tokens,
        "rounds": arguments.rounds,
        "peak_memory_is": PEAK_IS,
        "sides": sides,
    }
    compared = comparison(sides) if arguments.compare else {}
    if compared:
        report["comparison"] = compared
    if arguments.out is not None:
        write_report(arguments.out, report)
    for side, figures in sides.items():
        print(side)
        for name, value in figures.items():
            if name != "step_seconds":
                print(f"  {name:<28} {value}")
    for name, value in compared.items():
        print(f"{name:<30} {value}")


if __name__ == "__main__":
    main()

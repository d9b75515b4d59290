"""One model in this engine and in its rivals, as tokens a second: decoding, and prompts.

Rivals have processes of their own, and the environment as it is. What each gives is of its own
times where it tells them, else of whole calls.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Verifier
from kakeya_fleet.engine.sampling.choice import GREEDY, choose_token
from scripts.bench.asked_process import Asked, llama_cpp

CONTEXT, DECODED = 256, 64
PROMPT = 2000
TOGETHER, STEPS_TOGETHER = 16, 12
TOKENS = [(37 * index) % 40_000 + 100 for index in range(PROMPT)]
"""Times do not depend on which."""
CHUNK = 64
DTYPES, CACHES = ("bfloat16", "float32"), ("dynamic", "static")
"""Of transformers."""
PROBED, LONGER = 16, (PROMPT, CONTEXT)
"""Tokens of the prompt that tells how long others would take, and the others, longest first."""
FEW_DECODED = 4
LONGEST_SECONDS = 120.0
"""A prompt that would take longer is not asked for."""


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: each gives tokens a second. `together` is None where it is not measured."""

    decode: Callable[[], float]
    prefill: Callable[[], float]
    together: Callable[[], float] | None = None
    prompt_tokens: int = PROMPT


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


def mlx_side(folder: Path, bits: int, stack: ExitStack) -> Side:
    """mlx-lm's `generate_step`, quantized by itself where there are bits.

    Its prompts are as long as it reads in `LONGEST_SECONDS`: on a CPU MLX takes its time.
    """
    words = [sys.executable, "-m", "scripts.bench.mlx_server", str(folder), str(bits)]
    rival = Asked(words, stack)

    def seconds(prompt: int) -> float:
        found: float = rival({"prompt": TOKENS[:prompt]})["seconds"]
        return found

    def steps(count: int) -> list[float]:
        found: list[float] = rival({"context": CONTEXT, "count": count})["steps"]
        return found

    a_token = seconds(PROBED) / PROBED
    prompt = next((each for each in LONGER if each * a_token < LONGEST_SECONDS), PROBED)
    decoded = DECODED if DECODED * sum(steps(1)) < LONGEST_SECONDS else FEW_DECODED

    def decode() -> float:
        return 1 / statistics.mean(steps(decoded))

    return Side(decode, lambda: prompt / seconds(prompt), prompt_tokens=prompt)


def measured(
    found: Mapping[str, Side], rounds: int, *, what: tuple[str, ...]
) -> dict[str, dict[str, object]]:
    """Tokens a second, medians of rounds in which all sides take turns."""
    values: dict[str, dict[str, list[float]]] = {name: {} for name in found}
    for number in range(rounds + 1):
        for name, side in found.items():
            for each in what:
                call: Callable[[], float] | None = getattr(side, each)
                # The first round warms up.
                if call is not None and (told := call()) and number:
                    values[name].setdefault(each, []).append(told)
    return {
        name: {
            each: {"median": statistics.median(told), "rounds": told} for each, told in own.items()
        }
        for name, own in values.items()
    }


def shorter_prompts(found: Mapping[str, Side]) -> dict[str, int]:
    """Tokens of the prompts of those sides for which `PROMPT` is too long."""
    return {
        name: side.prompt_tokens for name, side in found.items() if side.prompt_tokens != PROMPT
    }

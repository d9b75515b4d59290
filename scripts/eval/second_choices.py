"""Would several candidates a position pay: is a second choice right where the first one is not.

    python -m scripts.eval.second_choices --out benchmarks/second_choices.json

A tree of drafts verifies, beside a chain of first choices, the second ones of its first places: a
forward of more rows, which commits a token more where a second choice is right. The published model
in bfloat16 answers; its plain drafter of four bits is asked at every place behind the answer's own
tokens which two come next, greedily and with the verifier's random numbers. Forwards of rows, and a
drafted token, are timed in turns. From these come the tokens a second of the best chain, and of the
best one with second choices, were their mask, their draws and their keys free, and places right
independently of each other.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import for_drafts, load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sampling.choice import choose_token
from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.fleet.placement.cost_model import (
    MAX_BLOCK_SIZE,
    expected_tokens,
    step_seconds,
)
from scripts.bench.draft_forwards import BLOCK, DTYPE, HEATS, WEIGHTS, answer
from scripts.bench.machine import command, machine, write_report
from scripts.bench.plain_drafts import MODEL
from scripts.bench.trained_drafter import KINDS

MOST_ROWS = 2 * (MAX_BLOCK_SIZE + 1)
"""No fewer than the longest chain has with second choices, and the token before it."""
ROUNDS = 15
"""Of the timings."""


@dataclass(frozen=True, slots=True)
class Places:
    """Of so many places, at how many the first choice was right, and at how many the second."""

    count: int
    first: int
    second: int

    @property
    def right(self) -> float:
        """The share of places at which the first choice is right."""
        return self.first / self.count

    @property
    def then(self) -> float:
        """Where it is not, the share at which the second is."""
        return self.second / max(1, self.count - self.first)


def committed(right: float, then: float, length: int, siblings: int) -> float:
    """Tokens that a forward commits of a chain of `length` with second choices at its first places.

    Places are taken to be right independently of each other: those of the chain, and one more where
    the first wrong one has a second choice that is right.
    """
    return expected_tokens(right, length) + sum(
        right**place * (1 - right) * then for place in range(siblings)
    )


def best(
    places: Places, verify: Sequence[StepCost], draft_seconds: float, *, tree: bool
) -> dict[str, float]:
    """The most tokens a second over lengths, and numbers of second choices for a tree.

    `verify` is measured up to as many rows as the longest tree has, a drafted token takes
    `draft_seconds`.
    """
    found = []
    for length in range(MAX_BLOCK_SIZE + 1):
        for siblings in range(length + 1) if tree else (0,):
            tokens = committed(places.right, places.then, length, siblings)
            seconds = step_seconds(verify, 1 + length + siblings) + length * draft_seconds
            found.append((tokens / seconds, length, siblings, tokens))
    speed, length, siblings, tokens = max(found)
    return {
        "tokens_per_second": speed,
        "length": length,
        "second_choices": siblings,
        "tokens_a_forward": tokens,
    }


def ranked(logits: np.ndarray, choose: Callable[[np.ndarray], int]) -> tuple[int, int]:
    """The choice, and what it would be without it."""
    first = choose(logits)
    without = logits.copy()
    without[first] = -np.inf
    return first, choose(without)


def plain_choices(
    drafter: Verifier, prompt: Sequence[int], said: Sequence[int], heat: str
) -> Iterator[tuple[int, int]]:
    """A plain drafter's first and second choice at each place of an answer."""
    parameters = HEATS[heat]
    cache = drafter.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=len(prompt) + len(said)))
    # As narrow as a draft: of more rows its inputs have fewer bits.
    widest = min(BLOCK, drafter.row_counts[-1])
    tokens = [*prompt, *said[:-1]]
    for first in range(0, len(tokens), widest):
        logits = drafter.forward(cache, tokens[first : first + widest], want_logits=True)
        assert logits is not None
        for position, row in enumerate(logits, first + 1):
            if position >= len(prompt):
                yield ranked(row, partial(choose_token, parameters=parameters, position=position))
    cache.release()


def timed(verifier: Verifier, drafter: Verifier, context: int) -> tuple[list[StepCost], float]:
    """The verifier's forwards by rows, and seconds of a drafted token: medians, in turns."""
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=context + 64)
    works: dict[int, list[float]] = {}
    caches = [each.allocate(spec) for each in (verifier, drafter)]
    for cache in caches:
        cache.fill(context, seed=0)
    rows = [count for count in verifier.row_counts if count <= MOST_ROWS]
    rng = random.Random(0)
    # The first round, which grows what grows once, is not counted.
    for number in range(ROUNDS + 1):
        for count in rng.sample([0, *rows], len(rows) + 1):
            computing, cache = (verifier, caches[0]) if count else (drafter, caches[1])
            began = time.perf_counter()
            computing.forward(cache, [1] * max(1, count), want_logits=True)
            seconds = time.perf_counter() - began
            cache.truncate(context)
            if number:
                works.setdefault(count, []).append(seconds)
    for cache in caches:
        cache.release()
    medians = {count: statistics.median(found) for count, found in works.items()}
    return [StepCost(count, medians[count]) for count in rows], medians[0]


def measured(arguments: argparse.Namespace) -> dict[str, object]:
    """By how the verifier draws."""
    folder = resolve_model(MODEL, dtype=DTYPE)
    codec = TextCodec.from_folder(folder.path)
    verifier = load_verifier(folder, backend="torch", dtype=DTYPE)
    few = load_verifier(folder, backend="torch", dtype=DTYPE, weights=WEIGHTS)
    drafter = for_drafts(few, folder)
    prompts = [
        codec.tokens_for_chat([{"role": "user", "content": question}])
        for questions in KINDS.values()
        for question in questions[: arguments.prompts]
    ]
    verify, draft_seconds = timed(verifier, drafter, arguments.context)
    found: dict[str, object] = {
        "verify_milliseconds": {each.token_count: 1e3 * each.seconds for each in verify},
        "draft_milliseconds_a_token": 1e3 * draft_seconds,
    }
    for heat, parameters in HEATS.items():
        counts = [0, 0, 0]
        for prompt in prompts:
            stops = set(codec.stop_token_ids)
            said, cache = answer(verifier, prompt, parameters, stops, arguments.tokens)
            cache.release()
            choices = plain_choices(drafter, prompt, said, heat)
            for token, (first, second) in zip(said, choices, strict=True):
                counts[0] += 1
                counts[1] += token == first
                counts[2] += token == second
        places = Places(*counts)
        chain = best(places, verify, draft_seconds, tree=False)
        tree = best(places, verify, draft_seconds, tree=True)
        found[heat] = {
            "places": places.count,
            "first_right": places.right,
            "second_right_where_first_is_not": places.then,
            "chain": chain,
            "tree": tree,
            "tree_over_chain": tree["tokens_per_second"] / chain["tokens_per_second"],
        }
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, at most")
    parser.add_argument("--prompts", type=int, default=2, help="of each kind")
    parser.add_argument("--context", type=int, default=256, help="tokens behind which is timed")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/second_choices.json"))
    arguments = parser.parse_args(words)
    found = measured(arguments)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "model": MODEL,
        "drafter_weights": WEIGHTS,
        **found,
    }
    write_report(arguments.out, report)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

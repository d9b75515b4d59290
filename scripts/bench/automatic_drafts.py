"""What sessions that choose their drafts themselves come to, one after the other.

    python -m scripts.bench.automatic_drafts

The verifier is the published model in bfloat16; the shipped drafter, the same model in four bits
and n-grams draft on another node of this machine. Each prompt is answered alone, by a session of
speculation auto, and alone again, greedily and at temperature 0.7 with the same seed, up to the
turn's end: the second answer alone over the first says how far two equal measurements lie apart.
All answers to a prompt must be the same. Sessions learn of each other, so each round of all prompts
is told apart. No session names a proposer: what such ones measure, others are planned by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from kakeya import AsyncClient
from scripts.bench.machine import command, machine, write_report
from scripts.bench.plain_drafts import MODEL, Answer, drafted_for, own_side
from scripts.bench.trained_drafter import KINDS, SEED, SHIPPED, TEMPERATURES
from scripts.support.agent_process import LocalFleet

ALONE, AUTO, AGAIN = "alone", "auto", "alone again"
SIDES = (ALONE, AUTO, AGAIN)
PROPOSERS = (SHIPPED, MODEL, "ngram")
FLOOR = 0.95
"""No session is to be slower than this share of decoding alone."""

Speeds = dict[str, float]
"""Tokens a second, by side."""
Answered = list[tuple[str, str, Speeds]]
"""Temperature, kind of text and speeds of each prompt of one round."""


async def measured(count: int, rounds: int) -> dict[str, object]:
    """All rounds, and what they come to."""
    with LocalFleet("automatic-drafts") as fleet:
        async with AsyncExitStack() as stack:
            client, _, ids = await drafted_for(fleet, PROPOSERS, stack)
            return await answered(client, ids, count, rounds)


async def answered(
    client: AsyncClient, ids: Callable[[str], Awaitable[list[int]]], count: int, rounds: int
) -> dict[str, object]:
    """Each prompt by each side, in so many rounds; `ids` makes token ids of a question."""
    found: list[Answered] = []
    firsts: dict[str, list[float]] = {side: [] for side in SIDES}
    differing = 0
    stops = tuple((await client.text(MODEL)).stop_token_ids)
    sides: Mapping[float, Mapping[str, Answer]] = {
        heat: {
            side: own_side(client, "auto" if side == AUTO else "off", count, heat, SEED, stops)
            for side in SIDES
        }
        for heat in TEMPERATURES
    }
    prompts = [(kind, await ids(question)) for kind in KINDS for question in KINDS[kind]]
    for _ in range(rounds):
        own: Answered = []
        for kind, prompt in prompts:
            for heat in TEMPERATURES:
                speeds: Speeds = {}
                said: list[int] = []
                for side, answer in sides[heat].items():
                    speeds[side], tokens, more = await answer(prompt)
                    firsts[side].append(float(str(more["first_token_seconds"])))
                    said = said or tokens
                    differing += said != tokens
                own.append((str(heat), kind, speeds))
        found.append(own)
    return {
        "answers_that_differ": differing,
        "first_token_seconds": {side: statistics.median(firsts[side]) for side in SIDES},
        "rounds": [
            {str(heat): times_alone(each, str(heat)) for heat in TEMPERATURES} for each in found
        ],
        "tokens_per_second": found,
    }


def times_alone(own: Answered, heat: str) -> dict[str, object]:
    """Of one round: `auto` over the mean time alone, prompt by prompt, and what noise comes to."""
    kinds: dict[str, list[float]] = {}
    noise = []
    for mine, kind, speeds in own:
        if mine == heat:
            seconds = (1 / speeds[ALONE] + 1 / speeds[AGAIN]) / 2
            kinds.setdefault(kind, []).append(speeds[AUTO] * seconds)
            noise.append(speeds[AGAIN] / speeds[ALONE])
    every = [ratio for each in kinds.values() for ratio in each]
    return {
        "all": statistics.median(every),
        "least": min(every),
        "below_the_floor": sum(ratio < FLOOR for ratio in every),
        "answers": len(every),
        **{kind: statistics.median(each) for kind, each in kinds.items()},
        "alone_again": {"least": min(noise), "most": max(noise)},
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/automatic_drafts.json"))
    asked = parser.parse_args(words)
    found = asyncio.run(measured(asked.tokens, asked.rounds))
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": asked.tokens,
        "seed": SEED,
        **found,
    }
    write_report(asked.out, report)
    print(json.dumps(report["rounds"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

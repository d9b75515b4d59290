"""What drafts win, or cost, where one verifier answers several sessions at once.

    python -m scripts.bench.crowded_drafts

The verifier is the published model in bfloat16; the shipped drafter, the same model in four bits
and n-grams draft on another node of this machine, on the same cores. So many sessions answer at
once, each prompt after prompt, alone, by speculation auto and alone again, in turns, greedily and
at temperature 0.7 with the same seed; all answers to a prompt must be the same. Tokens a second of
all together, prompts among it. What drafts are worth beside others is found out as sessions go:
rounds are told apart. What alone again makes of alone says how far two measures of the same lie
apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from kakeya.options import SpeculationChoice
from scripts.bench.automatic_drafts import PROPOSERS
from scripts.bench.machine import command, machine, write_report
from scripts.bench.plain_drafts import MODEL, Answer, drafted_for, own_side
from scripts.bench.trained_drafter import KINDS, SEED, TEMPERATURES
from scripts.support.agent_process import LocalFleet

SIDES: Mapping[str, SpeculationChoice] = {"alone": "off", "auto": "auto", "again": "off"}
COUNTS = (1, 2, 4, 8, 16)
LEAST_ANSWERS = 12


async def answered(
    answer: Answer, prompts: Sequence[list[int]], at_once: int
) -> tuple[float, list[list[int]]]:
    """Tokens a second of all answers together, and the answers."""
    turns = asyncio.Semaphore(at_once)

    async def one(prompt: list[int]) -> list[int]:
        async with turns:
            _, tokens, _ = await answer(prompt)
            return tokens

    began = time.perf_counter()
    said = await asyncio.gather(*(one(prompt) for prompt in prompts))
    return sum(map(len, said)) / (time.perf_counter() - began), list(said)


async def measured(tokens: int, rounds: int, counts: Sequence[int]) -> dict[str, object]:
    """Each number of sessions, by temperature and side."""
    cells = []
    differing = 0
    with LocalFleet("crowded-drafts") as fleet:
        async with AsyncExitStack() as stack:
            client, _, ids = await drafted_for(fleet, PROPOSERS, stack)
            stops = tuple((await client.text(MODEL)).stop_token_ids)
            prompts = [await ids(question) for each in KINDS.values() for question in each]
            for count in counts:
                some = prompts * -(-max(LEAST_ANSWERS, 2 * count) // len(prompts))
                for heat in TEMPERATURES:
                    speeds: dict[str, list[float]] = {side: [] for side in SIDES}
                    for _ in range(rounds):
                        said: list[list[list[int]]] = []
                        for side, speculation in SIDES.items():
                            answer = own_side(client, speculation, tokens, heat, SEED, stops)
                            speed, own = await answered(answer, some, count)
                            speeds[side].append(speed)
                            said.append(own)
                        differing += sum(not a == b == c for a, b, c in zip(*said, strict=True))
                    cells.append({"sessions": count, "temperature": heat, **told(speeds)})
    return {"answers_that_differ": differing, "cells": cells}


def told(speeds: dict[str, list[float]]) -> dict[str, object]:
    """All rounds; what auto made of those alone around it, and alone again of the one before."""
    rounds = list(zip(*(speeds[side] for side in SIDES), strict=True))
    return {
        "tokens_per_second": speeds,
        "times_alone": [2.0 * auto / (alone + again) for alone, auto, again in rounds],
        "again_times_alone": [again / alone for alone, _, again in rounds],
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--sessions", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/crowded_drafts.json"))
    arguments = parser.parse_args(words)
    found = asyncio.run(measured(arguments.tokens, arguments.rounds, arguments.sessions))
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": arguments.tokens,
        "seed": SEED,
        **found,
    }
    write_report(arguments.out, report)
    print(json.dumps(found["cells"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

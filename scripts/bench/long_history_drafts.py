"""Drafts behind histories of thousands of tokens, and behind ones that have left the window.

    python -m scripts.bench.long_history_drafts

The verifier is the published model in bfloat16; the same model in four bits, the shipped drafter
and n-grams draft on another node of this machine, which also keeps an archive. Each history is a
page of this repository with a question before and behind it. Sides take turns with each, greedily
and at temperature 0.7 with the same seed: sessions of full attention, and ones that a window and
the archive restore. All answers of sessions of one kind to a prompt must be the same. Tokens a
second of a whole answer: what its first draft waits for is in it.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from kakeya import Speculation
from kakeya.options import SpeculationChoice
from scripts.bench.intervals import least_median
from scripts.bench.machine import ROOT, command, machine, write_report
from scripts.bench.plain_drafts import FULL, MODEL, drafted_for, own_side
from scripts.bench.trained_drafter import ALONE, SEED, SHIPPED, TEMPERATURES
from scripts.support.agent_process import LocalFleet

PLAIN, AUTO = "plain int4", "auto"
PAGES = ("docs/long-sessions.md", "docs/members.md")
QUESTIONS = ("Summarize this text:", "List what a reader should do, one line each:")
WINDOW_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Kind:
    """Sessions of a kind, of a history so long."""

    name: str
    history_tokens: int
    drafters: tuple[str, ...]
    session: Mapping[str, object]


RESTORED = {"kv_strategy": "restored", "sink_tokens": 4, "window_tokens": WINDOW_TOKENS}

Cell = dict[str, dict[str, list[float]]]
"""By side and what is measured, prompt by prompt and round by round."""


def kinds(full_tokens: int, restored_tokens: int) -> tuple[Kind, ...]:
    """What is measured."""
    return (
        Kind("full", full_tokens, (PLAIN, AUTO), FULL),
        Kind("restored", restored_tokens, (AUTO,), RESTORED),
    )


async def measured(
    measured_kinds: Sequence[Kind], count: int, rounds: int
) -> tuple[int, list[dict[str, object]]]:
    """Answers that differ, and a cell each kind of session and temperature."""
    found: dict[tuple[str, float], Cell] = {}
    lengths: dict[str, int] = {}
    differing = 0
    with LocalFleet("long-history-drafts") as fleet:
        async with AsyncExitStack() as stack:
            proposers = (SHIPPED, MODEL, "ngram")
            client, node_id, ids = await drafted_for(fleet, proposers, stack, ("archive=2GiB",))
            text = await client.text(MODEL)
            stops = tuple(text.stop_token_ids)
            page = text.encode("\n\n".join((ROOT / name).read_text("utf-8") for name in PAGES))
            speculations: dict[str, SpeculationChoice] = {
                ALONE: "off",
                PLAIN: Speculation(MODEL, node_id=node_id),
                AUTO: "auto",
            }
            asked: list[tuple[Kind, list[int]]] = []
            for kind, question in product(measured_kinds, QUESTIONS):
                part = text.decode(page[: kind.history_tokens])
                asked.append((kind, await ids(f"{question}\n\n{part}\n\n{question}")))
            for number, (kind, prompt), heat in product(range(rounds + 1), asked, TEMPERATURES):
                lengths[kind.name] = len(prompt)
                said: list[int] = []
                for side in (ALONE, *kind.drafters):
                    choice = speculations[side]
                    answer = own_side(
                        client, choice, count, heat, SEED, stops, session=kind.session
                    )
                    speed, tokens, told = await answer(prompt)
                    said = said or tokens
                    differing += said != tokens
                    # The first round warms up; sessions learn of each other.
                    if number:
                        cell = found.setdefault((kind.name, heat), {})
                        own = cell.setdefault(side, {"speed": [], "forward": []})
                        own["speed"].append(speed)
                        own["forward"].append(float(str(told["tokens_a_forward"])))
    return differing, [
        {
            "sessions": name,
            "history_tokens": lengths[name],
            "temperature": heat,
            "sides": told_of(cell),
        }
        for (name, heat), cell in found.items()
    ]


def told_of(cell: Cell) -> dict[str, dict[str, float]]:
    """Medians by side, and how many times as fast as alone, answer by answer."""
    alone = cell[ALONE]["speed"]
    told = {}
    for side, own in cell.items():
        ratios = [mine / other for mine, other in zip(own["speed"], alone, strict=True)]
        told[side] = {
            "tokens_per_second": statistics.median(own["speed"]),
            "tokens_a_forward": statistics.median(own["forward"]),
            "times_alone": statistics.median(ratios),
            "times_alone_least_prompt": least_median(ratios, len(QUESTIONS)),
            "times_alone_least": min(ratios),
        }
    return told


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--full", type=int, default=2800, help="tokens of a page, read whole")
    parser.add_argument("--restored", type=int, default=800, help="of one that is restored")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/long_history_drafts.json"))
    asked = parser.parse_args(words)
    cells = kinds(asked.full, asked.restored)
    differing, found = asyncio.run(measured(cells, asked.tokens, asked.rounds))
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": asked.tokens,
        "window_tokens": WINDOW_TOKENS,
        "seed": SEED,
        "answers_that_differ": differing,
        "cells": found,
    }
    write_report(asked.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

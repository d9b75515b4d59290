"""A drafter that was trained for the published model, beside n-grams, a plain model, and nobody.

    python -m scripts.bench.trained_drafter --llama-cpp VENV/bin/python

The verifier is the published model in bfloat16; the shipped drafter, or one in a folder as
`scripts.train.pair` exports it, the same model in four bits and n-grams draft on another node of
this machine. Sides take turns with each prompt, by kind of text, greedily and at temperature 0.7
with the same seed, up to the turn's end; all answers here to a prompt must be the same. The prompts
are none that the drafter was trained on. llama.cpp has the model in BF16, alone, and answers
greedily. Tokens a second of whole answers, the wait for their first drafts in them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from gguf.constants import GGMLQuantizationType

from kakeya import Speculation
from kakeya.options import SpeculationChoice
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.engine.models.gguf.source import find_gguf
from kakeya_fleet.engine.models.model_folder import resolve
from scripts.bench.asked_process import llama_cpp
from scripts.bench.intervals import least_median
from scripts.bench.machine import command, machine, write_report
from scripts.bench.plain_drafts import (
    MODEL,
    PROMPTS,
    QUOTED,
    Answer,
    drafted_for,
    llama_side,
    own_side,
)
from scripts.bench.published_gguf import write_as
from scripts.support.agent_process import LocalFleet

TEMPERATURES = (0.0, 0.7)
SEED = 11
SHIPPED = "smollm2-dflash"
ALONE, TRAINED, RIVAL = "alone", "trained", "llama.cpp BF16"
KINDS: Mapping[str, Sequence[str]] = {
    **PROMPTS,
    "summaries": (
        f"Summarize this text in one sentence: {QUOTED}",
        f"What are the main points of this text? {QUOTED} The nets hang beside them, and whoever"
        " passes is asked to hold an end.",
    ),
    "prose": (
        "Write a short story about a harbour in winter.",
        "Write a letter to a neighbour about a fence between two gardens.",
    ),
}

Sides = Mapping[str, Answer]


async def fleet_sides(
    fleet: LocalFleet, trained: str, count: int, stack: AsyncExitStack
) -> tuple[dict[float, Sides], Callable[[str], Awaitable[list[int]]]]:
    """Sides by temperature and name, and what makes token ids of a question."""
    client, node_id, ids = await drafted_for(fleet, (trained, MODEL, "ngram"), stack)
    stops = (await client.text(MODEL)).stop_token_ids
    drafters = {"n-gram": "ngram", "plain int4": MODEL, TRAINED: Path(trained).name}
    speculations: dict[str, SpeculationChoice] = {
        ALONE: "off",
        **{name: Speculation(model, node_id=node_id) for name, model in drafters.items()},
        "auto": "auto",
    }
    return {
        heat: {
            name: own_side(client, speculation, count, heat, SEED, tuple(stops))
            for name, speculation in speculations.items()
        }
        for heat in TEMPERATURES
    }, ids


async def measured(trained: str, count: int, rounds: int, python: Path | None) -> dict[str, object]:
    """By temperature, kind of text and side."""
    values: dict[float, dict[str, dict[str, list[float]]]] = {}
    forwards: dict[float, dict[str, dict[str, list[float]]]] = {}
    differing = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        fleet = processes.enter_context(LocalFleet("trained-drafter"))
        async with AsyncExitStack() as stack:
            by_heat, ids = await fleet_sides(fleet, trained, count, stack)
            rivals: dict[str, Answer] = {}
            if python is not None:
                whole = Path(folder) / "bf16.gguf"
                write_as(find_gguf(MODEL).path, whole, GGMLQuantizationType.BF16)
                rival = llama_cpp(python, whole, os.cpu_count() or 1, processes)
                rivals[RIVAL] = llama_side(rival, count)
            for number in range(rounds + 1):
                for kind, questions in KINDS.items():
                    for prompt in [await ids(question) for question in questions]:
                        for heat, sides in by_heat.items():
                            said: list[int] = []
                            for name, answer in {**sides, **({} if heat else rivals)}.items():
                                speed, tokens, told = await answer(prompt)
                                if name != RIVAL:
                                    said = said or tokens
                                    differing += said != tokens
                                # The first round warms up; sessions learn of each other.
                                if number:
                                    _add(values, heat, kind, name, speed)
                                    if "tokens_a_forward" in told:
                                        each = float(str(told["tokens_a_forward"]))
                                        _add(forwards, heat, kind, name, each)
    return {
        "answers_that_differ": differing,
        "tokens_per_second": _medians(values),
        "tokens_a_forward": _medians(forwards),
        "times_alone": {
            str(heat): {name: _times_alone(by_kind, name) for name in by_heat[heat]}
            for heat, by_kind in values.items()
        },
    }


def _add(
    found: dict[float, dict[str, dict[str, list[float]]]],
    heat: float,
    kind: str,
    name: str,
    value: float,
) -> None:
    found.setdefault(heat, {}).setdefault(kind, {}).setdefault(name, []).append(value)


def _medians(found: Mapping[float, Mapping[str, Mapping[str, Sequence[float]]]]) -> object:
    """By temperature, kind and side; of all kinds together too."""
    told: dict[str, dict[str, dict[str, float]]] = {}
    for heat, by_kind in found.items():
        names = dict.fromkeys(name for by_side in by_kind.values() for name in by_side)
        told[str(heat)] = {
            kind: {name: statistics.median(each) for name, each in by_side.items()}
            for kind, by_side in by_kind.items()
        }
        told[str(heat)]["all"] = {
            name: statistics.median([v for by_side in by_kind.values() for v in by_side[name]])
            for name in names
        }
    return told


def _times_alone(by_kind: Mapping[str, Mapping[str, Sequence[float]]], name: str) -> object:
    """How many times as fast as alone, answer by answer: medians by kind, and the least.

    Also the least of medians by prompt: two answers alone differ by a quarter now and then.
    """
    ratios = {
        kind: [mine / alone for mine, alone in zip(by_side[name], by_side[ALONE], strict=True)]
        for kind, by_side in by_kind.items()
    }
    every = [ratio for each in ratios.values() for ratio in each]
    return {
        "least": min(every),
        "least_prompt": min(least_median(each, len(KINDS[kind])) for kind, each in ratios.items()),
        "all": statistics.median(every),
        **{kind: statistics.median(each) for kind, each in ratios.items()},
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--drafter", default=SHIPPED, help="a shipped drafter, or a folder")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--llama-cpp", type=Path, help="a Python that has xllamacpp")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/trained_drafter.json"))
    asked = parser.parse_args(words)
    drafter = resolve(asked.drafter)
    spec = asked.drafter if asked.drafter == drafter.model_id else str(drafter.path.resolve())
    found = asyncio.run(measured(spec, asked.tokens, asked.rounds, asked.llama_cpp))
    report = {
        # Where these lie is nobody else's matter.
        "command": command(__file__).replace(str(asked.llama_cpp), "PYTHON"),
        "drafter": weights_digest(drafter.path),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": asked.tokens,
        "seed": SEED,
        **found,
    }
    write_report(asked.out, report)
    print(json.dumps({key: report[key] for key in ("times_alone", "tokens_per_second")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What it costs to hold answers to a JSON schema: tokens a second with one and without.

    python -m scripts.bench.structured

The published model on this machine, alone and with n-grams that draft. Each side answers each
question in turn; the first round warms up. Free answers go on to as many tokens as are asked for,
held ones mostly end before. Tokens a second of whole answers. What a grammar takes by itself
is measured here, on the tokens of the held answers: compiling it, and each token's mask.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from kakeya import AsyncClient, GenerateOptions, Speculation, SpeculationChoice
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.models.digests import tokenizer_digest
from kakeya_fleet.engine.models.model_folder import vocabulary_size
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.grammars import Grammars
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import LocalFleet
from scripts.support.placement import when_it_can_be_had

MODEL = "smollm2"
SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 60},
        "language": {"enum": ["English", "French", "German"]},
        "entries": {
            "type": "array",
            "minItems": 6,
            "maxItems": 12,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 40},
                    "number": {"type": "integer", "minimum": 0, "maximum": 1000},
                    "is_large": {"type": "boolean"},
                },
                "required": ["name", "number", "is_large"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["title", "language", "entries"],
    "additionalProperties": False,
}
QUESTIONS = (
    "List the twelve months of the year with the number of days of each, as JSON.",
    "List ten animals with the number of their legs, as JSON.",
    "List the planets of the solar system with the number of their moons, as JSON.",
)


async def measured(count: int, rounds: int) -> dict[str, object]:
    """By side, and of grammars by themselves."""
    speeds: dict[str, list[float]] = {}
    told: dict[str, dict[str, int]] = {}
    held_ids: list[tuple[int, ...]] = []
    with ExitStack() as processes:
        fleet = processes.enter_context(LocalFleet("structured"))
        serve = (f"verifier={MODEL}", "proposer=ngram")
        agent = fleet.start("one", serve=serve, peers=(), environment={})
        await asyncio.to_thread(agent.wait_for, "ready", seconds=300.0)
        async with AsyncClient(agent.address) as client:
            text = await client.text(MODEL)
            sides: dict[str, tuple[SpeculationChoice, GenerateOptions]] = {
                "free, alone": ("off", {}),
                "held, alone": ("off", {"json_schema": SCHEMA}),
                "free, n-gram": (Speculation("ngram"), {}),
                "held, n-gram": (Speculation("ngram"), {"json_schema": SCHEMA}),
            }
            for number in range(rounds + 1):
                for question in QUESTIONS:
                    prompt = text.tokens_for_chat([{"role": "user", "content": question}])
                    said: dict[bool, tuple[int, ...]] = {}
                    for name, (speculation, options) in sides.items():
                        ids, speed, counts = await answered(
                            client, prompt, count, speculation, options
                        )
                        is_held = bool(options)
                        if said.setdefault(is_held, ids) != ids:
                            raise ValueError(f"{name} is another stream: {question}")
                        if number:
                            speeds.setdefault(name, []).append(speed)
                            sums = told.setdefault(name, dict.fromkeys(counts, 0))
                            for key, value in counts.items():
                                sums[key] += value
                    held_ids.append(said[True])
    return {
        "tokens_per_second": {name: statistics.median(each) for name, each in speeds.items()},
        "counts": told,
        "grammar": await alone(held_ids),
    }


async def answered(
    client: AsyncClient,
    prompt: Sequence[int],
    count: int,
    speculation: SpeculationChoice,
    options: GenerateOptions,
) -> tuple[tuple[int, ...], float, dict[str, int]]:
    """The tokens, how many a second, and what speculation did."""
    session = await when_it_can_be_had(
        lambda: client.create_session(MODEL, speculation=speculation, kv_strategy="full")
    )
    async with session:
        await session.append(prompt)
        said = await session.generate(count, **options).collect()
    speculated = said.done.speculation
    counts = {
        "tokens": len(said.token_ids),
        "forwards": speculated.verify_forward_count,
        "drafted": speculated.drafted_count,
        "forbidden": speculated.forbidden_count,
        "accepted": speculated.accepted_count,
    }
    return said.token_ids, len(said.token_ids) / said.done.timings.total_seconds, counts


async def alone(answers: Sequence[Sequence[int]]) -> dict[str, float]:
    """Seconds of a grammar's parts, without a model."""
    folder = resolve_model(MODEL, dtype="auto").path
    size = vocabulary_size(folder)
    tokenizer = ModelTokenizer(MODEL, str(folder), tokenizer_digest(folder), size)
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(SCHEMA))
    grammars = Grammars()
    began = time.perf_counter()
    await grammars.guide(Grammar(GrammarKind.REGEX, "a"), tokenizer)
    vocabulary_read = time.perf_counter()
    await grammars.guide(grammar, tokenizer)
    compiled = time.perf_counter()
    steps: list[float] = []
    for ids in answers:
        guide = await grammars.guide(grammar, tokenizer)
        for token_id in ids:
            step = time.perf_counter()
            guide.allowed()
            guide.take([token_id])
            steps.append(time.perf_counter() - step)
    return {
        "vocabulary_seconds": vocabulary_read - began,
        "compile_seconds": compiled - vocabulary_read,
        "token_seconds_median": statistics.median(steps),
        "token_seconds_mean": statistics.fmean(steps),
        "vocabulary_size": float(size),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/structured.json"))
    asked = parser.parse_args(words)
    found = asyncio.run(measured(asked.tokens, asked.rounds))
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": asked.tokens,
        **found,
    }
    write_report(asked.out, report)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

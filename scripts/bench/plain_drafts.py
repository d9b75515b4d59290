"""A plain model that drafts for the published one, beside n-grams, and llama.cpp's draft model.

    python -m scripts.bench.plain_drafts --llama-cpp VENV/bin/python

The verifier is the published model in bfloat16, the drafter the same model in four bits on another
node of this machine, as anyone has both. Sides take turns with each prompt, by kind of text; all
answers here must be the same. llama.cpp has the model in BF16, and drafts with it in Q4_0, at its
own settings (three tokens a draft) and at eight. Tokens a second of a whole answer, its first draft
and what that is given of the prompt among it; llama.cpp says its own, behind the prompt.
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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gguf.constants import GGMLQuantizationType

from kakeya import AsyncClient, Speculation
from kakeya.options import GenerateOptions, SpeculationChoice
from kakeya_fleet.engine.models.gguf.source import find_gguf
from scripts.bench.asked_process import Asked, llama_cpp
from scripts.bench.machine import command, machine, write_report
from scripts.bench.published_gguf import write_as
from scripts.faults.scene import see_each_other
from scripts.support.agent_process import AgentProcess, LocalFleet
from scripts.support.child_process import Behind
from scripts.support.placement import when_it_can_be_had

MODEL = "smollm2"
FULL: Mapping[str, object] = {"kv_strategy": "full"}
QUOTED = (
    "The harbour lies behind two moles of grey stone. In winter the boats are drawn up to the wall"
    " and turned over, and in spring they are tarred there, one after the other, by the oldest men."
)
PROMPTS: Mapping[str, Sequence[str]] = {
    "chat": (
        "Why is the sky blue? Explain it to a child.",
        "I sleep badly before exams. What can I do?",
    ),
    "code": (
        "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
        "Write a Python class for a stack with push, pop and peek.",
    ),
    "lists": (
        "List the twelve months of the year with the number of days of each.",
        "List ten capital cities of Europe and their countries.",
    ),
    "rewriting": (
        f"Correct the spelling of this text, and repeat it whole: {QUOTED}",
        f"Write this text again in the present tense: {QUOTED}",
    ),
}
DRAFTED = (3, 8)
"""llama.cpp's tokens a draft: its own number, and more."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent runs: what it binds to, and what has its command run there."""

    bind: str = "127.0.0.1:0"
    behind: Behind = list
    environment: Mapping[str, str] = field(default_factory=dict)


HERE = Place()

Answer = Callable[[list[int]], Awaitable[tuple[float, list[int], dict[str, object]]]]
"""Tokens a second, the tokens, and what else is known of an answer to a prompt."""


def own_side(
    client: AsyncClient,
    speculation: SpeculationChoice,
    count: int,
    temperature: float = 0.0,
    seed: int = 0,
    stops: Sequence[int] = (),
    *,
    session: Mapping[str, object] = FULL,
) -> Answer:
    """A session of the fleet for each answer, up to one of `stops`; at 0 it is greedy.

    `session` are further arguments of `create_session`.
    """
    sampling: GenerateOptions = {"temperature": temperature, "seed": seed} if temperature else {}

    async def answer(prompt: list[int]) -> tuple[float, list[int], dict[str, object]]:
        opening = partial(
            client.create_session,
            MODEL,
            speculation=speculation,
            stop_token_ids=stops,
            **session,  # type: ignore[arg-type]
        )
        async with await when_it_can_be_had(opening) as opened:
            await opened.append(prompt)
            said = await opened.generate(count, **sampling).collect()
        told, seconds = said.done.speculation, said.done.timings.total_seconds
        forwards = told.verify_forward_count or len(said.token_ids)
        return (
            len(said.token_ids) / seconds,
            list(said.token_ids),
            {
                "tokens_a_forward": len(said.token_ids) / forwards,
                "accepted_share": told.accepted_count / max(1, told.drafted_count),
                "first_token_seconds": said.done.timings.first_token_seconds,
                "faults": sum(fault.count for fault in told.faults),
            },
        )

    return answer


def llama_side(rival: Asked, count: int) -> Answer:
    """llama.cpp by its own times."""

    async def answer(prompt: list[int]) -> tuple[float, list[int], dict[str, object]]:
        found = await asyncio.to_thread(rival, {"prompt": prompt, "count": count})
        return found["timings"]["predicted_per_second"], found["tokens"], {}

    return answer


def rivals(python: Path, folder: Path, count: int, stack: ExitStack) -> dict[str, Answer]:
    """llama.cpp alone, and with a draft model."""
    published = find_gguf(MODEL).path
    whole, quantized = folder / "bf16.gguf", folder / "q4_0.gguf"
    write_as(published, whole, GGMLQuantizationType.BF16)
    write_as(published, quantized, GGMLQuantizationType.Q4_0)
    threads = os.cpu_count() or 1
    found = {"llama.cpp BF16": llama_side(llama_cpp(python, whole, threads, stack), count)}
    for size in DRAFTED:
        drafting = llama_cpp(python, whole, threads, stack, draft=quantized, drafted=size)
        found[f"llama.cpp BF16, drafts of {size} by Q4_0"] = llama_side(drafting, count)
    return found


async def fleet_sides(
    fleet: LocalFleet, count: int, stack: AsyncExitStack
) -> tuple[dict[str, Answer], Callable[[str], Awaitable[list[int]]]]:
    """Sides by name, and what makes token ids of a question."""
    client, node_id, ids = await drafted_for(fleet, (MODEL, "ngram"), stack)
    return {
        "alone": own_side(client, "off", count),
        "n-gram": own_side(client, Speculation("ngram", node_id=node_id), count),
        "plain int4": own_side(client, Speculation(MODEL, node_id=node_id), count),
        "auto": own_side(client, "auto", count),
    }, ids


async def drafted_for(
    fleet: LocalFleet,
    proposers: Sequence[str],
    stack: AsyncExitStack,
    also: Sequence[str] = (),
    *,
    near: Place = HERE,
    far: Place = HERE,
) -> tuple[AsyncClient, str, Callable[[str], Awaitable[list[int]]]]:
    """A client of the model's node, the node of what drafts, and token ids of a question.

    The second node, which is `far`, serves what is named `also`.
    """
    verifier = await asyncio.to_thread(started, fleet, "verifier", (f"verifier={MODEL}",), near)
    serve = (*also, *(f"proposer={each}" for each in proposers))
    place = replace(far, environment={**far.environment, "KAKEYA_WEIGHTS": "int4"})
    drafter = await asyncio.to_thread(started, fleet, "drafter", serve, place, verifier)
    await see_each_other([verifier, drafter])
    client = await stack.enter_async_context(AsyncClient(verifier.address))
    text = await client.text(MODEL)

    async def ids(question: str) -> list[int]:
        return list(text.tokens_for_chat([{"role": "user", "content": question}]))

    return client, drafter.node_id, ids


def started(
    fleet: LocalFleet,
    name: str,
    serve: Sequence[str],
    place: Place = HERE,
    peer: AgentProcess | None = None,
) -> AgentProcess:
    """An agent that is ready."""
    agent = fleet.start(
        name,
        serve=serve,
        peers=() if peer is None else (peer.address,),
        bind=place.bind,
        behind=place.behind,
        environment=place.environment,
    )
    agent.wait_for("ready", seconds=300.0)
    return agent


async def measured(count: int, rounds: int, python: Path | None) -> dict[str, object]:
    """By kind of text and side."""
    values: dict[str, dict[str, list[float]]] = {}
    more: dict[str, dict[str, list[dict[str, object]]]] = {}
    differing = 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as processes:
        fleet = processes.enter_context(LocalFleet("plain-drafts"))
        async with AsyncExitStack() as stack:
            sides, ids = await fleet_sides(fleet, count, stack)
            own = set(sides)
            if python is not None:
                sides |= await asyncio.to_thread(rivals, python, Path(folder), count, processes)
            for number in range(rounds + 1):
                for kind, questions in PROMPTS.items():
                    for question in questions:
                        prompt = await ids(question)
                        said: list[int] = []
                        for name, answer in sides.items():
                            speed, tokens, told = await answer(prompt)
                            if name in own:
                                said = said or tokens
                                differing += said != tokens
                            # The first round warms up, and lets sessions learn of each other.
                            if number:
                                values.setdefault(kind, {}).setdefault(name, []).append(speed)
                                more.setdefault(kind, {}).setdefault(name, []).append(told)
    return {
        "answers_that_differ": differing,
        "tokens_per_second": {
            kind: {name: statistics.median(each) for name, each in by_side.items()}
            for kind, by_side in values.items()
        },
        "all_kinds": {
            name: statistics.median(
                [each for by_side in values.values() for each in by_side.get(name, [])]
            )
            for name in sides
        },
        "drafting": {
            kind: {
                name: {
                    key: statistics.mean(float(str(told[key])) for told in each) for key in each[0]
                }
                for name, each in by_side.items()
                if each[0]
            }
            for kind, by_side in more.items()
        },
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--llama-cpp", type=Path, help="a Python that has xllamacpp")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/plain_drafts.json"))
    asked = parser.parse_args(words)
    found = asyncio.run(measured(asked.tokens, asked.rounds, asked.llama_cpp))
    report = {
        # Where that Python lies is nobody else's matter.
        "command": command(__file__).replace(str(asked.llama_cpp), "PYTHON"),
        "machine": machine(),
        "model": MODEL,
        "answer_tokens": asked.tokens,
        **found,
    }
    write_report(asked.out, report)
    print(json.dumps({key: report[key] for key in ("tokens_per_second", "all_kinds")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the speculative loop keeps of an ideal one, whatever the model.

    python -m scripts.bench.loop --out benchmarks/loop.json

Random weights at a real model's shape, and a proposer that replays the verifier's
own stream and errs at a set rate: figures of the loop, not of any model. Each
round answers the same prompt alone, with the proposer in this process, and with
it in another one behind a network that is slower by so many milliseconds a round
trip, in an order shuffled anew, and times the verify step itself beside them.
See `scripts.bench.loop_efficiency` for the ideal. All answers are the same tokens, or
the run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc.aio
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import BlockTiming, Committed, Done
from kakeya_fleet.engine.speculation.roster import Roster
from kakeya_fleet.engine.verifiers.exactness import Exactness, settle
from kakeya_fleet.node.roles.proposer.remote_draft import RemoteDraftSource
from kakeya_fleet.node.roles.proposer.served_proposer import run_in_thread
from kakeya_fleet.node.roles.worker import ModelWorker
from kakeya_fleet.node.rpc.grpc_settings import client_options
from scripts.bench.decode_models import DTYPES, SHAPES, checkpoint_folder, random_checkpoint
from scripts.bench.intervals import summary
from scripts.bench.loop_efficiency import Delays, hidden_seconds, ideal_seconds, waits
from scripts.bench.machine import command, machine, write_report
from scripts.bench.replaying import ReplayingProposer, guesses
from scripts.bench.replaying_node import ReplayingNode

GOAL = 0.9
ALONE, IN_PROCESS, REMOTE = "alone", "in_process", "remote"
QUICK = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}
"""A toy of the same family, for a smoke run."""
STEP_REPEATS = 3
METHOD = (
    "Random weights; the proposer replays the verifier's own stream and errs at a set rate. The "
    "verifier, its loop and its draft source run in this process, a remote proposer in another "
    "one behind this engine's gRPC draft stream."
)
EFFICIENCY = (
    "measured tokens a second over acceptance length / (verify step + draft time not hidden): the "
    "step is a forward with logits of as many rows, timed before and after each answer outside of "
    "the loop; not hidden are a fresh draft's own seconds with the added round trip, and what "
    "those of one made ahead exceed the step by. of_hidden counts no draft time at all."
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the drafts come from; `probability` that one is right, `added` seconds of network."""

    kind: str
    probability: float = 0.0
    draft_seconds: float = 0.0
    added: float = 0.0

    @property
    def model_id(self) -> str:
        """What the proposer is called."""
        return f"replaying-{self.probability:g}-{self.draft_seconds:g}"


@dataclass(frozen=True, slots=True)
class Answer:
    """One generation: its tokens, blocks, and seconds from its first block to its end."""

    tokens: tuple[int, ...]
    blocks: tuple[BlockTiming, ...]
    seconds: float
    done: Done


@dataclass(slots=True)
class Cell:
    """All rounds of one place."""

    tokens_per_second: list[float] = field(default_factory=list)
    efficiency: list[float] = field(default_factory=list)
    of_hidden: list[float] = field(default_factory=list)
    blocks: list[BlockTiming] = field(default_factory=list)
    acceptance_length: float = 0.0
    faults: int = 0

    def add(self, place: Place, answer: Answer, steps: dict[int, float]) -> None:
        """Adds one round; `steps` are its verify steps by rows."""
        delays = Delays(place.draft_seconds, place.added)
        self.tokens_per_second.append(len(answer.tokens) / answer.seconds)
        self.efficiency.append(ideal_seconds(answer.blocks, steps, delays) / answer.seconds)
        self.of_hidden.append(hidden_seconds(answer.blocks, steps) / answer.seconds)
        self.blocks += answer.blocks
        self.acceptance_length = answer.done.speculation.acceptance_length
        self.faults += sum(answer.done.speculation.faults.values())

    def summary(self, place: Place) -> dict[str, object]:
        """For JSON."""
        return {
            "place": place.kind,
            "right_probability": place.probability,
            "draft_seconds": place.draft_seconds,
            "added_round_trip_seconds": place.added,
            "tokens_per_second": summary(self.tokens_per_second),
            "acceptance_length": self.acceptance_length,
            "efficiency": summary(self.efficiency),
            "of_hidden": summary(self.of_hidden),
            "verify_seconds_p50": statistics.median(block.verify_seconds for block in self.blocks),
            **waits(self.blocks),
            "draft_faults": self.faults,
        }


class Bench:
    """A verifier in its thread, and a session at the prompt that every answer forks."""

    def __init__(
        self, verifier: Verifier, worker: ModelWorker, arguments: argparse.Namespace
    ) -> None:
        self._verifier = verifier
        self._worker = worker
        self._new_tokens = arguments.new_tokens
        rng = random.Random(arguments.seed)
        size = verifier.info.vocabulary_size
        self.prompt = [rng.randrange(size) for _ in range(arguments.context)]
        capacity = arguments.context + arguments.new_tokens + verifier.info.width
        self._base = Session(
            verifier, verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity))
        )

    async def read_prompt(self) -> None:
        """Prefills the base session."""
        driver = SessionDriver(self._worker.run_turn, time.perf_counter)
        await driver.append(self._base, self.prompt, run_step=self._worker.run)

    async def answer(self, source: DraftSource | None) -> Answer:
        """The continuation of the prompt, with the drafts of `source`."""
        session = await self._worker.run(self._base.fork)
        tokens: list[int] = []
        blocks: list[BlockTiming] = []
        done: Done | None = None
        began = time.perf_counter()
        async for event in generate(
            session,
            Roster.of_one(source) if source is not None else None,
            GenerationParameters(max_tokens=self._new_tokens),
            SessionDriver(self._worker.run_turn, time.perf_counter),
            on_block=blocks.append,
        ):
            if isinstance(event, Committed):
                tokens += event.token_ids
            else:
                done = event
        seconds = time.perf_counter() - began
        session.end("closed")
        if done is None:
            raise RuntimeError("a generation ends with its report")
        return Answer(tuple(tokens), tuple(blocks), seconds, done)

    async def steps(self, tokens: Sequence[int]) -> dict[int, float]:
        """Median seconds of a verify forward behind the prompt, by rows; `tokens` continue it."""
        return await self._worker.run(partial(self._steps, tokens))

    def _steps(self, tokens: Sequence[int]) -> dict[int, float]:
        verifier = self._verifier
        session = self._base.fork()
        feed = session.verify_feed((), 1)
        cache = feed.cache
        found = {}
        for rows in verifier.row_counts:
            count = min(rows, verifier.info.width)
            fed = [self.prompt[-1], *tokens][:count]
            seconds = []
            for _ in range(STEP_REPEATS):
                began = time.perf_counter()
                verifier.forward(cache, fed, want_logits=True)
                seconds.append(time.perf_counter() - began)
                cache.truncate(len(self.prompt) - 1)
            found[rows] = statistics.median(seconds)
            if rows >= verifier.info.width:
                break
        session.not_run()
        session.end("closed")
        return found


@asynccontextmanager
async def opened(
    place: Place, known: Sequence[int], node: ReplayingNode, verifier: Verifier
) -> AsyncIterator[DraftSource | None]:
    """The draft source of a place."""
    if place.kind == ALONE:
        yield None
    elif place.kind == IN_PROCESS:
        proposer = ReplayingProposer(place.model_id, known, place.draft_seconds)
        source = (
            LocalDraftSource(proposer, lambda _count: run_in_thread)
            if place.draft_seconds
            else LocalDraftSource(proposer)
        )
        yield source
        await source.close()
    else:
        info = verifier.info
        async with grpc.aio.insecure_channel(
            node.address(place.added), options=client_options()
        ) as channel:
            remote = RemoteDraftSource(
                channel, place.model_id, info.vocabulary_size, info.tokenizer_digest
            )
            yield remote
            await remote.close()


def places(arguments: argparse.Namespace) -> list[Place]:
    """Every cell of the table."""
    found = [Place(ALONE)]
    for probability in arguments.probabilities:
        for draft_ms in arguments.draft_ms:
            draft = draft_ms / 1000
            found.append(Place(IN_PROCESS, probability, draft))
            found += [
                Place(REMOTE, probability, draft, added / 1000) for added in arguments.added_ms
            ]
    return found


async def measure(
    verifier: Verifier, arguments: argparse.Namespace
) -> tuple[dict[Place, Cell], dict[int, list[float]]]:
    """All rounds of all places, and the verify steps by rows, one a round."""
    worker = ModelWorker("bench-loop")
    bench = Bench(verifier, worker, arguments)
    await bench.read_prompt()
    stream = [*bench.prompt, *(await bench.answer(None)).tokens]
    found = {place: Cell() for place in places(arguments)}
    known = {
        place.model_id: guesses(
            stream, place.probability, verifier.info.vocabulary_size, arguments.seed
        )
        for place in found
    }
    served = [
        {
            "model_id": place.model_id,
            "known": known[place.model_id],
            "draft_seconds": place.draft_seconds,
        }
        for place in found
        if place.kind == IN_PROCESS
    ]
    steps: dict[int, list[float]] = {}
    order = random.Random(arguments.seed)
    with ReplayingNode(served, [added / 1000 for added in arguments.added_ms]) as node:
        for round_index in range(-1, arguments.rounds):
            for place in order.sample(list(found), len(found)):
                continuation = stream[len(bench.prompt) :]
                before = await bench.steps(continuation)
                async with opened(place, known[place.model_id], node, verifier) as source:
                    answer = await bench.answer(source)
                after = await bench.steps(continuation)
                own_steps = {rows: (before[rows] + after[rows]) / 2 for rows in before}
                if [*bench.prompt, *answer.tokens] != stream:
                    raise SystemExit(f"{place} said other tokens than the verifier alone")
                # Round -1 warms everything up.
                if round_index >= 0:
                    found[place].add(place, answer, own_steps)
                    for rows, seconds in own_steps.items():
                        steps.setdefault(rows, []).append(seconds)
            print(f"round {round_index + 1} of {arguments.rounds}", file=sys.stderr)
    await worker.close()
    return found, steps


def run(arguments: argparse.Namespace, folders: Path) -> None:
    """Makes the checkpoint, measures, and writes the report."""
    config = QUICK if arguments.quick else {}
    folder = random_checkpoint(arguments.model, arguments.dtype, folders, **config)
    verifier = load_verifier(
        ModelFolder(folder, folder.name), backend="torch", dtype=arguments.dtype
    )
    exactness: Exactness = settle(verifier)
    cells, steps = asyncio.run(measure(verifier, arguments))
    summaries = [cell.summary(place) for place, cell in cells.items()]
    worst = min(
        statistics.median(cell.efficiency) for place, cell in cells.items() if place.kind != ALONE
    )
    write_report(
        arguments.out,
        {
            "command": command(__file__),
            "machine": machine(),
            "method": METHOD,
            "efficiency_is": EFFICIENCY,
            "model": "toy" if arguments.quick else f"{arguments.model} shape, random weights",
            "dtype": arguments.dtype,
            "exact": exactness.exact,
            "row_counts": list(exactness.row_counts),
            "context_tokens": arguments.context,
            "new_tokens": arguments.new_tokens,
            "rounds": arguments.rounds,
            "verify_step_seconds": {
                str(rows): summary(seconds) for rows, seconds in sorted(steps.items())
            },
            "cells": summaries,
            "least_efficiency": worst,
            "goal": GOAL,
            "goal_met": worst >= GOAL,
            "tokens_identical": True,
        },
    )
    for place, cell in cells.items():
        print(
            f"{place.kind:<11} p {place.probability:<4g} +{place.added * 1000:<4g} ms  "
            f"{statistics.median(cell.tokens_per_second):8.1f} tokens/s  "
            f"efficiency {statistics.median(cell.efficiency):.3f}  "
            f"accepted {cell.acceptance_length:.2f}"
        )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=sorted(SHAPES), default="Qwen3-0.6B")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    parser.add_argument("--probabilities", nargs="+", type=float, default=[0.7, 0.9])
    parser.add_argument("--draft-ms", nargs="+", type=float, default=[0.0], help="a block takes")
    parser.add_argument("--added-ms", nargs="+", type=float, default=[0.0, 1.0, 5.0, 20.0])
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path, help="keeps the random checkpoint there")
    parser.add_argument("--quick", action="store_true", help="a toy model and one short round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/loop.json"))
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds, arguments.context, arguments.new_tokens = 1, 24, 24
        arguments.probabilities, arguments.added_ms = arguments.probabilities[:1], [0.0, 2.0]
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    with checkpoint_folder(arguments.checkpoints) as folder:
        run(arguments, folder)


if __name__ == "__main__":
    main()

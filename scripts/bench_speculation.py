"""The shipped pair against the fastest plain decoding of the same verifier.

    python scripts/bench_speculation.py --rounds 3 --out benchmarks/speculation.json

Two agents on this machine, as in `scripts.bench_remote`: one serves the verifier
and the proposer, the other the proposer and an archive. Each prompt of each kind is
answered by each side in turn, in an order shuffled anew every round: with drafts
from the other process, with drafts from the verifier's own, and without, under
each way of keeping K/V; by the verifier alone with full attention; and by
transformers' `generate` on the same folder. Sides with the same K/V say the same
tokens, greedy and sampled, or the run fails.

Plain decoding is this engine alone, whatever it keeps, and transformers; the
ratios are to whichever of them is the fastest, answer by answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import python_corpus
import torch
from prompt_kinds import CODE, KINDS, RANDOM, prompts
from speculation_table import markdown
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.model_folder import ModelFolder, resolve
from kakeya import AsyncClient, GenerationDone, Speculation
from node.agent_process import LocalFleet
from scripts.bench_machine import machine, script_command, write_report
from scripts.fleet_answers import Measured, fleet_answer, transformers_answer
from scripts.intervals import summary

REMOTE, IN_PROCESS, ALONE, TRANSFORMERS = "remote", "in_process", "alone", "transformers"
FULL = "full"
SAMPLING = {"greedy": 0.0, "sampled": 0.7}
GOALS = {"code_over_plain": 2.0, "code_acceptance_length": 4.0, "random_over_plain": 0.95}


@dataclass(frozen=True, slots=True)
class Side:
    """Who answers, and how the K/V are kept: `full`, `sink_window` or `restored:RESTORER`."""

    place: str
    kv: str

    @property
    def name(self) -> str:
        """As the report calls it."""
        return self.place if self.place == TRANSFORMERS else f"{self.place} {self.kv}"

    @property
    def plain(self) -> bool:
        """Whether nothing is drafted."""
        return self.place in (ALONE, TRANSFORMERS)

    def session_options(self, sink: int, window: int) -> dict[str, object]:
        """Arguments of `create_session`."""
        strategy, _, restorer = self.kv.partition(":")
        options: dict[str, object] = {"kv_strategy": strategy}
        if strategy != FULL:
            options |= {"sink_tokens": sink, "window_tokens": window}
        return options | ({"restorer": restorer} if restorer else {})


def sides(kv_kinds: Sequence[str]) -> list[Side]:
    """All that answer."""
    found = [Side(place, kv) for kv in kv_kinds for place in (REMOTE, IN_PROCESS, ALONE)]
    return [*found, Side(ALONE, FULL), Side(TRANSFORMERS, FULL)]


@dataclass(slots=True)
class Cell:
    """One kind of prompts, greedy or sampled: every side's answers in the same order."""

    measured: dict[Side, Measured] = field(default_factory=dict)

    def add(
        self, side: Side, token_count: int, seconds: float, done: GenerationDone | None
    ) -> None:
        """Adds one answer."""
        self.measured.setdefault(side, Measured()).add(token_count, seconds, done)

    def summary(self) -> dict[str, object]:
        """For JSON: figures by side, and ratios of drafting sides to the fastest plain one."""
        plain = fastest_plain(self.measured)
        ratios = {}
        for side, figures in self.measured.items():
            if side.plain:
                continue
            alone = self.measured[Side(ALONE, side.kv)]
            ratios[side.name] = {
                "over_fastest_plain": summary(_ratios(figures, self.measured[plain])),
                "over_alone_with_the_same_kv": summary(_ratios(figures, alone)),
            }
        return {
            "sides": {side.name: figures.summary() for side, figures in self.measured.items()},
            "fastest_plain": plain.name,
            "ratios": ratios,
        }


def fastest_plain(measured: Mapping[Side, Measured]) -> Side:
    """The plain side with the most tokens a second in the middle of its answers."""

    def speed(side: Side) -> float:
        ordered = sorted(measured[side].tokens_per_second)
        return ordered[len(ordered) // 2]

    return max((side for side in measured if side.plain), key=speed)


def _ratios(one: Measured, other: Measured) -> list[float]:
    pairs = zip(one.tokens_per_second, other.tokens_per_second, strict=True)
    return [mine / theirs for mine, theirs in pairs]


def proposer_id(named: str) -> str:
    """What requests call the proposer of a role `NAME` or `FOLDER@TARGET`."""
    model = named.partition("@")[0]
    return Path(model).name if Path(model).is_dir() else model


class Bench:
    """The fleet's verifier, transformers' model of the same folder, and who answers."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        client: AsyncClient,
        folder: ModelFolder,
        nodes: Mapping[str, str],
    ) -> None:
        self._arguments = arguments
        self._client = client
        self._folder = folder
        self._nodes = nodes
        model = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32)
        self._reference = model.eval()

    async def answer(
        self, side: Side, prompt: Sequence[int], temperature: float, seed: int
    ) -> tuple[tuple[int, ...], float, GenerationDone | None]:
        """Tokens, seconds, and the fleet's report."""
        arguments = self._arguments
        if side.place == TRANSFORMERS:
            tokens, seconds = transformers_answer(
                self._reference,
                prompt,
                arguments.max_tokens,
                temperature=temperature,
                seed=seed,
            )
            return tokens, seconds, None
        speculation: Speculation | str = "off"
        if not side.plain:
            speculation = Speculation(
                proposer_id(arguments.proposer), node_id=self._nodes[side.place]
            )
        return await fleet_answer(
            self._client,
            self._folder.model_id,
            prompt,
            arguments.max_tokens,
            speculation,
            session_options=side.session_options(arguments.sink, arguments.window),
            temperature=temperature,
            seed=seed if temperature else None,
        )


async def measure(
    arguments: argparse.Namespace, address: str, nodes: Mapping[str, str]
) -> dict[tuple[str, str], Cell]:
    """All rounds of all cells by (kind, sampling)."""
    folder = resolve(arguments.verifier)
    tokenizer = AutoTokenizer.from_pretrained(folder.path)
    _, held_out = python_corpus.split(python_corpus.read_corpus(arguments.corpus))
    asked = {
        kind: prompts(
            kind,
            tokenizer,
            held_out,
            count=arguments.prompts,
            tokens=arguments.prompt_tokens,
            seed=arguments.seed,
        )
        for kind in arguments.kinds
    }
    cells = {(kind, sampling): Cell() for kind in asked for sampling in SAMPLING}
    order = random.Random(arguments.seed)
    everyone = sides(arguments.kv)
    async with AsyncClient(address) as client:
        bench = Bench(arguments, client, folder, nodes)
        # Round -1 warms every side up, with one prompt of each kind.
        for round_index in range(0 if arguments.quick else -1, arguments.rounds):
            for (kind, sampling), cell in cells.items():
                for index, prompt in enumerate(asked[kind][: 1 if round_index < 0 else None]):
                    said: dict[str, set[tuple[int, ...]]] = {}
                    for side in order.sample(everyone, len(everyone)):
                        tokens, seconds, done = await bench.answer(
                            side, prompt, SAMPLING[sampling], seed=1 + index
                        )
                        if side.place != TRANSFORMERS:
                            said.setdefault(side.kv, set()).add(tokens)
                        if round_index >= 0:
                            cell.add(side, len(tokens), seconds, done)
                    if any(len(streams) != 1 for streams in said.values()):
                        raise SystemExit(f"sides disagree on {kind} prompt {index}, {sampling}")
            print(f"round {round_index + 1} of {arguments.rounds}", file=sys.stderr)
    return cells


def verdict(cells: Mapping[tuple[str, str], Mapping[str, object]], kv: str) -> dict[str, object]:
    """The figures that the goals are about: the remote proposer with K/V kept as `kv`."""
    found: dict[str, object] = {}
    name = Side(REMOTE, kv).name
    for (kind, sampling), cell in cells.items():
        ratios, figures = cell["ratios"], cell["sides"]
        if not isinstance(ratios, dict) or not isinstance(figures, dict):
            raise TypeError("a cell has ratios and sides")
        if kind in (CODE, RANDOM):
            found[f"{kind}_over_plain_{sampling}"] = ratios[name]["over_fastest_plain"]["median"]
        if kind == CODE:
            found[f"code_acceptance_length_{sampling}"] = figures[name]["tokens_per_forward"]
    return found


def run(arguments: argparse.Namespace) -> None:
    """Starts the fleet, measures, and writes the report and its table."""
    torch.set_num_threads(1)
    one_thread = {"OMP_NUM_THREADS": "1"}
    archive = (f"archive={arguments.archive}",) if any(":" in kv for kv in arguments.kv) else ()
    with LocalFleet(f"bench-{os.getpid()}") as fleet:
        verifier = fleet.start(
            "verifier",
            serve=(f"verifier={arguments.verifier}", f"proposer={arguments.proposer}"),
            environment=one_thread,
        )
        proposer = fleet.start(
            "proposer",
            serve=(f"proposer={arguments.proposer}", *archive),
            peers=(verifier.address,),
            environment=one_thread,
        )
        verifier.wait_for("peer_joined")
        nodes = {REMOTE: proposer.node_id, IN_PROCESS: verifier.node_id}
        measured = asyncio.run(measure(arguments, verifier.address, nodes))
    cells = {key: cell.summary() for key, cell in measured.items()}
    report: dict[str, object] = {
        "command": script_command("bench_speculation"),
        "machine": machine(),
        "verifier": arguments.verifier,
        "proposer": arguments.proposer,
        "sink_tokens": arguments.sink,
        "window_tokens": arguments.window,
        "prompt_tokens": arguments.prompt_tokens,
        "max_tokens": arguments.max_tokens,
        "prompts_a_kind": arguments.prompts,
        "rounds": arguments.rounds,
        "temperatures": SAMPLING,
        "tokens_per_second_is": "new tokens over the seconds of append and generation",
        "cells": [
            {"kind": kind, "sampling": sampling, **cell} for (kind, sampling), cell in cells.items()
        ],
        "verdict": {kv: verdict(cells, kv) for kv in arguments.kv},
        "goals": GOALS,
        "tokens_identical": True,
    }
    write_report(arguments.out, report)
    table = markdown(report)
    arguments.out.with_suffix(".md").write_text(table)
    print(table)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verifier", default="tiny")
    parser.add_argument("--proposer", default="tiny-dflash")
    parser.add_argument(
        "--kv",
        nargs="+",
        default=["sink_window", "restored:archive", "restored:projection"],
        help="sink_window, restored:archive, restored:projection",
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--prompts", type=int, default=6, help="of a kind")
    parser.add_argument("--prompt-tokens", type=int, default=96)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--archive", default="512MiB", help="what the other node keeps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/speculation.json"))
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds, arguments.prompts, arguments.max_tokens = 1, 1, 24
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    run(parse(words))


if __name__ == "__main__":
    main()

"""The shipped pair against the fastest plain decoding of the same verifier.

    python -m scripts.bench.speculation --rounds 3 --out benchmarks/speculation.json

Two agents on this machine: one serves the verifier and the proposers, the other the
proposers and an archive. Each prompt of each kind is answered by each side in turn, in
an order shuffled anew every round: with drafts from the other process, with drafts
from the verifier's own, and without, under each way of keeping K/V; with prompt
lookup in the place of the pair's own proposer; by the verifier alone with full
attention; and by transformers' `generate` on the same folder, with each of its
caches. Sides with the same K/V say the same tokens, greedy and sampled, or the run
fails.

Plain decoding is this engine alone, whatever it keeps, and transformers; the
ratios are to whichever of them is the fastest, prompt by prompt, with a bootstrap
over prompts. `scripts/bench/prompt_kinds.py` says what the prompts are.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import scripts.train.python_corpus as python_corpus
from kakeya import AsyncClient, GenerationDone, Speculation
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from scripts.bench.fleet_answers import Measured, fleet_answer, transformers_answer
from scripts.bench.machine import command, machine, write_report
from scripts.bench.package_code import PACKAGES, package_files, package_versions
from scripts.bench.prompt_kinds import CODE, KINDS, PACKAGE, RANDOM, prompts
from scripts.bench.speculation_sides import (
    IN_PROCESS,
    LIBRARY_CACHES,
    REMOTE,
    Cell,
    Side,
    repeated_share,
    sides,
)
from scripts.bench.speculation_table import markdown
from scripts.support.agent_process import LocalFleet

SAMPLING = {"greedy": 0.0, "sampled": 0.7}
GOALS = {"code_over_plain": 2.0, "code_acceptance_length": 4.0, "random_over_plain": 0.95}
NOTES = {
    "tokens_per_second": "new tokens over the seconds of append and generation",
    "interval_95": "percentile bootstrap over prompts",
    "repeated_share": "share of an answer's tokens that end an 8-gram which prompt and answer "
    "already have: what prompt lookup drafts for nothing",
    "loop_efficiency": "seconds of the verify forwards and of what of the drafts cannot be hidden "
    "behind them, by the node's timeline, over the seconds of the generation",
    "code": "held-out files of the standard library, on whose other files the pair was trained",
    "package": "installed packages that neither was trained on",
    "random": "ids drawn evenly: not text",
}


def proposer_id(named: str) -> str:
    """What requests call the proposer of a role `NAME` or `FOLDER@TARGET`."""
    model = named.partition("@")[0]
    return Path(model).name if Path(model).is_dir() else model


@dataclass(frozen=True, slots=True)
class Asked:
    """Which prompt of its kind, how tokens are chosen, and whether the answers count."""

    index: int
    temperature: float
    counts: bool


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
        if side.place in LIBRARY_CACHES:
            tokens, seconds = transformers_answer(
                self._reference,
                prompt,
                arguments.max_tokens,
                temperature=temperature,
                seed=seed,
                cache=LIBRARY_CACHES[side.place],
            )
            return tokens, seconds, None
        speculation: Speculation | str = "off"
        if not side.plain:
            proposer = side.proposer or proposer_id(arguments.proposer)
            speculation = Speculation(proposer, node_id=self._nodes[side.place])
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


def asked_prompts(arguments: argparse.Namespace, folder: ModelFolder) -> dict[str, list[list[int]]]:
    """The prompts by kind."""
    tokenizer = AutoTokenizer.from_pretrained(folder.path)
    _, held_out = python_corpus.split(python_corpus.read_corpus(arguments.corpus))
    return {
        kind: prompts(
            kind,
            tokenizer,
            package_files() if kind == PACKAGE else held_out,
            count=arguments.prompts,
            tokens=arguments.prompt_tokens,
            seed=arguments.seed,
        )
        for kind in arguments.kinds
    }


async def answer_prompt(
    bench: Bench, cell: Cell, everyone: Sequence[Side], prompt: Sequence[int], asked: Asked
) -> dict[str, tuple[int, ...]]:
    """One prompt to everyone in this order; the tokens by K/V, which must be one stream each."""
    said: dict[str, set[tuple[int, ...]]] = {}
    for side in everyone:
        tokens, seconds, done = await bench.answer(side, prompt, asked.temperature, 1 + asked.index)
        if side.place not in LIBRARY_CACHES:
            said.setdefault(side.kv, set()).add(tokens)
        if asked.counts:
            cell.measured.setdefault(side, Measured()).add(len(tokens), seconds, done)
    if any(len(streams) != 1 for streams in said.values()):
        raise SystemExit(f"sides disagree on prompt {asked.index}, temperature {asked.temperature}")
    if asked.counts:
        cell.prompts.append(asked.index)
    return {kv: streams.pop() for kv, streams in said.items()}


async def measure(
    arguments: argparse.Namespace, address: str, nodes: Mapping[str, str]
) -> dict[tuple[str, str], Cell]:
    """All rounds of all cells by (kind, sampling)."""
    folder = resolve(arguments.verifier)
    asked = asked_prompts(arguments, folder)
    cells = {(kind, sampling): Cell() for kind in asked for sampling in SAMPLING}
    order = random.Random(arguments.seed)
    everyone = sides(arguments.kv, arguments.beside)
    async with AsyncClient(address) as client:
        bench = Bench(arguments, client, folder, nodes)
        # Round -1 warms every side up, with one prompt of each kind.
        for round_index in range(0 if arguments.quick else -1, arguments.rounds):
            for (kind, sampling), cell in cells.items():
                for index, prompt in enumerate(asked[kind][: 1 if round_index < 0 else None]):
                    shuffled = order.sample(everyone, len(everyone))
                    of = Asked(index, SAMPLING[sampling], counts=round_index >= 0)
                    said = await answer_prompt(bench, cell, shuffled, prompt, of)
                    if round_index == 0:
                        for kv, tokens in said.items():
                            share = repeated_share(prompt, tokens)
                            cell.repeated.setdefault(kv, []).append(share)
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
        if kind in (CODE, PACKAGE, RANDOM):
            found[f"{kind}_over_plain_{sampling}"] = ratios[name]["over_fastest_plain"]["median"]
        if kind == CODE:
            found[f"code_acceptance_length_{sampling}"] = figures[name]["tokens_per_forward"]
    return found


def run(arguments: argparse.Namespace) -> None:
    """Starts the fleet, measures, and writes the report and its table."""
    torch.set_num_threads(1)
    one_thread = {"OMP_NUM_THREADS": "1"}
    archive = (f"archive={arguments.archive}",) if any(":" in kv for kv in arguments.kv) else ()
    proposers = [f"proposer={named}" for named in (arguments.proposer, *arguments.beside)]
    with LocalFleet(f"bench-{os.getpid()}") as fleet:
        verifier = fleet.start(
            "verifier",
            serve=(f"verifier={arguments.verifier}", *proposers),
            environment=one_thread,
        )
        proposer = fleet.start(
            "proposer",
            serve=(*proposers, *archive),
            peers=(verifier.address,),
            environment=one_thread,
        )
        verifier.wait_for("peer_joined")
        nodes = {REMOTE: proposer.node_id, IN_PROCESS: verifier.node_id}
        measured = asyncio.run(measure(arguments, verifier.address, nodes))
    cells = {key: cell.summary() for key, cell in measured.items()}
    report: dict[str, object] = {
        "command": command(__file__),
        "machine": machine(),
        "verifier": arguments.verifier,
        "proposer": arguments.proposer,
        "beside": arguments.beside,
        "packages": package_versions(PACKAGES) if PACKAGE in arguments.kinds else {},
        "sink_tokens": arguments.sink,
        "window_tokens": arguments.window,
        "prompt_tokens": arguments.prompt_tokens,
        "max_tokens": arguments.max_tokens,
        "prompts_a_kind": arguments.prompts,
        "rounds": arguments.rounds,
        "temperatures": SAMPLING,
        "notes": NOTES,
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
        "--beside", nargs="*", default=["ngram"], help="proposers in the place of the pair's own"
    )
    parser.add_argument(
        "--kv",
        nargs="+",
        default=["sink_window", "restored:archive", "restored:projection"],
        help="sink_window, restored:archive, restored:projection",
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--prompts", type=int, default=20, help="of a kind")
    parser.add_argument("--prompt-tokens", type=int, default=96)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--archive", default="512MiB", help="what the other node keeps")
    parser.add_argument("--rounds", type=int, default=1, help="of every prompt to every side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/speculation.json"))
    arguments = parser.parse_args(words)
    arguments.beside = [named for named in arguments.beside if named != arguments.proposer]
    if arguments.quick:
        arguments.rounds, arguments.prompts, arguments.max_tokens = 1, 1, 24
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    run(parse(words))


if __name__ == "__main__":
    main()

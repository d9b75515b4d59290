"""What a remote proposer costs, and what it gains.

    python -m scripts.bench_remote --rounds 5 --out benchmarks/remote.json

Two agents on this machine: one serves the verifier and a proposer, the other
the same proposer. Each prompt is answered by each side in turn, in an order
shuffled anew every round: drafts from the other process, drafts from the
verifier's own process, the verifier alone, and transformers' `generate` on the
same folder. All greedy, all the same tokens, or the run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.model_folder import resolve
from kakeya import AsyncClient, GenerationDone, Speculation
from node.agent_process import LocalFleet
from scripts.bench_machine import command, machine, write_report
from scripts.fleet_answers import Measured, fleet_answer, transformers_answer

SIDES = ("remote", "in_process", "alone", "transformers")
PROMPTS = (
    "def parse_header(line):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\ndef main(argv=None):\n",
    "def read_config(path):\n    with open(path) as file:\n        for line in file:\n",
    "class TestStringMethods(unittest.TestCase):\n\n    def test_upper(self):\n",
    "def _format_usage(self, usage, actions, groups, prefix):\n",
)


async def measure(
    arguments: argparse.Namespace, address: str, nodes: Mapping[str, str]
) -> dict[str, Measured]:
    """All rounds; raises SystemExit when two sides disagree on a token."""
    folder = resolve(arguments.verifier)
    tokenizer = AutoTokenizer.from_pretrained(folder.path)
    reference = AutoModelForCausalLM.from_pretrained(folder.path, dtype=torch.float32).eval()
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    choices: dict[str, Speculation | str] = {
        "alone": "off",
        **{
            side: Speculation(arguments.proposer, node_id=node_id)
            for side, node_id in nodes.items()
        },
    }
    measured = {side: Measured() for side in SIDES}
    order = random.Random(arguments.seed)
    async with AsyncClient(address) as client:
        for round_index in range(-1, arguments.rounds):
            for prompt in prompts:
                answers: dict[str, tuple[int, ...]] = {}
                for side in order.sample(SIDES, len(SIDES)):
                    done: GenerationDone | None = None
                    if side == "transformers":
                        tokens, seconds = transformers_answer(
                            reference, prompt, arguments.max_tokens
                        )
                    else:
                        tokens, seconds, done = await fleet_answer(
                            client, folder.model_id, prompt, arguments.max_tokens, choices[side]
                        )
                    answers[side] = tokens
                    # Round -1 warms every side up.
                    if round_index >= 0:
                        measured[side].add(len(tokens), seconds, done)
                if len(set(answers.values())) != 1:
                    raise SystemExit(f"the sides disagree on {tokenizer.decode(prompt)!r}")
            print(f"round {round_index + 1} of {arguments.rounds}", file=sys.stderr)
    return measured


def ratios(sides: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What the figures are about."""
    speed: Callable[[str], float] = lambda side: sides[side]["tokens_per_second_median"]  # noqa: E731
    return {
        "remote_over_in_process": speed("remote") / speed("in_process"),
        "remote_over_alone": speed("remote") / speed("alone"),
        "remote_over_transformers": speed("remote") / speed("transformers"),
        "alone_over_transformers": speed("alone") / speed("transformers"),
    }


def main() -> None:
    """Measures and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verifier", default="tiny")
    parser.add_argument("--proposer", default="ngram")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/remote.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    one_thread = {"OMP_NUM_THREADS": "1"}
    with LocalFleet(f"bench-{os.getpid()}") as fleet:
        verifier = fleet.start(
            "verifier",
            serve=(f"verifier={arguments.verifier}", f"proposer={arguments.proposer}"),
            environment=one_thread,
        )
        proposer = fleet.start(
            "proposer",
            serve=(f"proposer={arguments.proposer}",),
            peers=(verifier.address,),
            environment=one_thread,
        )
        verifier.wait_for("peer_joined")
        nodes = {"remote": proposer.node_id, "in_process": verifier.node_id}
        measured = asyncio.run(measure(arguments, verifier.address, nodes))
    sides = {side: figures.summary() for side, figures in measured.items()}
    report = {
        "command": command("bench_remote"),
        "machine": machine(),
        "max_tokens": arguments.max_tokens,
        "prompts": len(PROMPTS),
        "rounds": arguments.rounds,
        "sides": sides,
        "ratios": ratios(sides),
        "tokens_identical": True,
    }
    write_report(arguments.out, report)
    print(json.dumps(report["ratios"], indent=2))


if __name__ == "__main__":
    main()

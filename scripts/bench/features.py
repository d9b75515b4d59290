"""What a remote proposer's features cost over each kind of link, against none.

    python -m scripts.bench.features --out benchmarks/features.json

The shipped pair, in real agents on this machine: one serves the proposer, and for each
kind of link one serves the verifier and is told to use it; the first of these serves
the proposer in its own process, too. Each prompt is answered by each side in turn, in an
order shuffled anew every round. A session first generates a few tokens and its link is
waited for, so that what is timed is the link itself; what came before is in
`tokens_per_second_from_the_start`. All greedy, all the same tokens, or the run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoTokenizer

from kakeya import AsyncClient, LinkPurpose, Speculation, TensorLink
from kakeya_fleet.engine.models.model_folder import resolve
from scripts.bench.intervals import summary
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import AgentProcess, LocalFleet

PROMPTS = (
    "def parse_header(line):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\ndef main(argv=None):\n",
    "def read_config(path):\n    with open(path) as file:\n        for line in file:\n",
    "class TestStringMethods(unittest.TestCase):\n\n    def test_upper(self):\n",
    "def _format_usage(self, usage, actions, groups, prefix):\n",
)
IN_PROCESS = "in process"
KINDS = ("grpc", "local", "ring", "auto")
LINK_SECONDS = 15.0
RING_SECONDS = 60.0
LOOK_SECONDS = 0.05
METHOD = (
    "Agents on this machine, over loopback, which share its cores. Tokens a second are those of "
    "one generation on a link that stands; bytes a token are all that the session's link carried, "
    "over the history's tokens, as the verifier's node counts its tensors."
)


class NoLink(Exception):
    """A session's link never became what its node was told to use; the message is its state."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of one side."""

    tokens: tuple[int, ...]
    seconds: float
    seconds_from_the_start: float
    first_tokens: int
    positions: int
    link_bytes: int
    link_tensors: int
    carried_by: str
    acceptance_length: float


@dataclass(slots=True)
class Measured:
    """All of one side."""

    answers: list[Answer] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        speeds = [len(answer.tokens) / answer.seconds for answer in self.answers]
        whole = [
            (answer.first_tokens + len(answer.tokens)) / answer.seconds_from_the_start
            for answer in self.answers
        ]
        kinds = [answer.carried_by for answer in self.answers]
        return {
            "tokens_per_second": summary(speeds),
            "tokens_per_second_by_answer": speeds,
            "tokens_per_second_from_the_start": summary(whole),
            "bytes_a_token": median(
                answer.link_bytes / answer.positions for answer in self.answers
            ),
            "tensors_an_answer": median(answer.link_tensors for answer in self.answers),
            "acceptance_length": median(answer.acceptance_length for answer in self.answers),
            "carried_by": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        }


class Side:
    """One verifier's node, and the node of the proposer that drafts for it."""

    def __init__(self, client: AsyncClient, kind: str, proposer_node: str) -> None:
        self.client = client
        self._kind = kind
        self._proposer_node = proposer_node

    async def answer(self, prompt: Sequence[int], arguments: argparse.Namespace) -> Answer:
        """The continuation of a prompt. Raises `NoLink`."""
        session = await self.client.create_session(
            resolve(arguments.verifier).model_id,
            speculation=Speculation(arguments.proposer, node_id=self._proposer_node),
        )
        async with session:
            began = time.perf_counter()
            await session.append(prompt)
            first = await session.generate(arguments.first_tokens).collect()
            started = time.perf_counter() - began
            await self._link()
            began = time.perf_counter()
            completion = await session.generate(arguments.max_tokens).collect()
            seconds = time.perf_counter() - began
            after = await self._seen()
        return Answer(
            tokens=completion.token_ids,
            seconds=seconds,
            seconds_from_the_start=started + seconds,
            first_tokens=len(first.token_ids),
            positions=len(prompt) + len(first.token_ids) + len(completion.token_ids),
            link_bytes=0 if after is None else after.byte_count,
            link_tensors=0 if after is None else after.tensor_count,
            carried_by=IN_PROCESS if after is None else after.transport.value,
            acceptance_length=completion.done.speculation.acceptance_length,
        )

    async def _link(self) -> None:
        """Waits until the session's link is of the side's kind. Raises `NoLink`."""
        if self._kind == IN_PROCESS:
            return
        until = time.monotonic() + LINK_SECONDS
        while time.monotonic() < until:
            found = await self._seen()
            if found is not None and self._kind in ("auto", found.transport.value):
                return
            await asyncio.sleep(LOOK_SECONDS)
        raise NoLink(found.reason if found else "none is open")

    async def _seen(self) -> TensorLink | None:
        if self._kind == IN_PROCESS:
            return None
        node = await self.client.fleet.node()
        links = [
            link
            for link in node.tensor_links
            if link.is_caller
            and link.purpose is LinkPurpose.FEATURES
            and link.peer_node_id == self._proposer_node
        ]
        return links[-1] if links else None


async def measure(
    arguments: argparse.Namespace, agents: Mapping[str, AgentProcess], proposer: AgentProcess
) -> tuple[dict[str, Measured], dict[str, str]]:
    """All rounds, and which kinds there are none of, with the reason.

    Raises SystemExit when two sides disagree on a token.
    """
    tokenizer = AutoTokenizer.from_pretrained(resolve(arguments.verifier).path)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS[: arguments.prompts]]
    measured = {kind: Measured() for kind in agents}
    left_out: dict[str, str] = {}
    order = random.Random(arguments.seed)
    async with AsyncExitStack() as stack:
        sides = {}
        for kind, agent in agents.items():
            client = await stack.enter_async_context(AsyncClient(agent.address))
            node = agent.node_id if kind == IN_PROCESS else proposer.node_id
            sides[kind] = Side(client, kind, node)
        rings = {agents[kind].node_id for kind in sides if kind in ("ring", "auto")}
        if rings:
            await _rings(next(iter(sides.values())).client, {*rings, proposer.node_id})
        for round_index in range(-1, arguments.rounds):
            for prompt in prompts[: 1 if round_index < 0 else None]:
                said: dict[str, tuple[int, ...]] = {}
                for kind in order.sample(list(sides), len(sides)):
                    try:
                        answer = await sides[kind].answer(prompt, arguments)
                    except NoLink as error:
                        left_out[kind] = str(error)
                        del sides[kind], measured[kind]
                        continue
                    said[kind] = answer.tokens
                    # Round -1 warms every side up.
                    if round_index >= 0:
                        measured[kind].answers.append(answer)
                if len(set(said.values())) != 1:
                    raise SystemExit(f"the sides disagree on {tokenizer.decode(prompt)!r}")
            print(f"round {round_index + 1} of {arguments.rounds}", file=sys.stderr)
    return measured, left_out


async def _rings(client: AsyncClient, node_ids: set[str]) -> None:
    """Waits until these nodes have found out that their hosts can form a ring.

    One that cannot is found out by its sessions' links.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(RING_SECONDS):
            while True:
                nodes = await client.fleet.nodes()
                ready = {node.node_id for node in nodes if node.card and node.card.ring_address}
                if node_ids <= ready:
                    return
                await asyncio.sleep(LOOK_SECONDS)


def over_in_process(sides: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Each kind's speed over that without a link, answer by answer."""
    base = sides[IN_PROCESS]["tokens_per_second_by_answer"]
    return {
        kind: summary(
            [
                one / two
                for one, two in zip(figures["tokens_per_second_by_answer"], base, strict=True)
            ]
        )
        for kind, figures in sides.items()
        if kind != IN_PROCESS
    }


def run(arguments: argparse.Namespace) -> None:
    """Starts the fleet, measures, and writes the report."""
    pair = (f"verifier={arguments.verifier}", f"proposer={arguments.proposer}")
    one_thread = {"OMP_NUM_THREADS": "1"}
    with LocalFleet(f"bench-{os.getpid()}") as fleet:
        proposer = fleet.start("proposer", serve=pair[1:], environment=one_thread)
        agents = {
            kind: fleet.start(
                f"verifier-{kind}",
                # The first of them is also the one with both in its process.
                serve=pair if kind == arguments.kinds[0] else pair[:1],
                peers=(proposer.address,),
                environment=one_thread | {"KAKEYA_LINKS": kind},
            )
            for kind in arguments.kinds
        }
        for agent in agents.values():
            agent.wait_for("peer_joined")
        agents = {IN_PROCESS: agents[arguments.kinds[0]], **agents}
        measured, left_out = asyncio.run(measure(arguments, agents, proposer))
    sides = {kind: figures.summary() for kind, figures in measured.items()}
    report = {
        "command": command(__file__),
        "machine": machine(),
        "method": METHOD,
        "verifier": arguments.verifier,
        "proposer": arguments.proposer,
        "prompts": arguments.prompts,
        "first_tokens": arguments.first_tokens,
        "max_tokens": arguments.max_tokens,
        "rounds": arguments.rounds,
        "sides": sides,
        "left_out": left_out,
        "over_in_process": over_in_process(sides),
        "tokens_identical": True,
    }
    write_report(arguments.out, report)
    for kind, figures in sides.items():
        print(
            f"{kind:<11} {figures['tokens_per_second']['median']:8.1f} tokens/s  "
            f"{figures['bytes_a_token']:8.1f} bytes a token  {figures['carried_by']}"
        )
    for kind, why in left_out.items():
        print(f"{kind:<11} left out: {why}")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--verifier", default="tiny")
    parser.add_argument("--proposer", default="tiny-dflash")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--first-tokens", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/features.json"))
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.rounds, arguments.prompts, arguments.max_tokens = 1, 1, 120
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    torch.set_num_threads(1)
    run(parse(words))


if __name__ == "__main__":
    main()

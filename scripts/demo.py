"""Two nodes, one answer: the walking fleet, shown in one go.

Starts agents as processes of their own on loopback, lets them find each other,
asks for a plan, streams an answer with drafts from the other node, checks it
against the verifier alone, then kills the proposer in mid-answer and checks
again. Exit code 0 only when everything held; leaves no process behind.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from kakeya import (
    AsyncClient,
    FleetSnapshot,
    KakeyaError,
    Liveness,
    Plan,
    Speculation,
    Tokens,
)
from kakeya.client import SpeculationChoice
from node.agent_process import AgentProcess, AgentProcessFailed, Event, LocalFleet
from node.cli.answer import Answer, Question, answer
from node.cli.comparison import Comparison, choose_proposer
from node.cli.failure import CommandFailed
from node.cli.fleet_table import COLUMNS, heading, rows
from node.cli.output import brush_for, terminal
from node.cli.plan_text import plan_lines
from node.cli.quantities import ratio_text, seconds_text, speed_text
from node.cli.statistics_text import (
    drafts_text,
    fault_lines,
    forwards_per_token,
    tokens_per_second,
)
from node.cli.tables import plain_table, rich_table
from node.cli.timeline import draw_timeline
from node.cli.tokenizer import TextStream, TextTokenizer, model_id_of, open_tokenizer
from node.network import multicast_fault

PROMPT = '''class Header:
    """One line of a message's header."""

    def __init__(self, name, value):
        self.name = name
        self.value = value

    def __eq__(self, other):
        return self.name == other.name and self.value == other.value

    def __repr__(self):
        return "Header(%r, %r)" % (self.name, self.value)


def parse_header(line):
'''
SHORT_TOKENS = 200
LONG_TOKENS = 450
MULTICAST_SECONDS = 6.0
MEETING_SECONDS = 15.0


class Stage:
    """Where the demo prints: coloured on a terminal, plain when piped."""

    def __init__(self) -> None:
        self._console = terminal(sys.stdout)
        self._scenes = 0

    def scene(self, title: str) -> None:
        """A numbered heading."""
        self._scenes += 1
        self._styled(f"\n{self._scenes}  {title}", "bold")

    def line(self, text: str = "", style: str = "") -> None:
        """A line below the heading."""
        self._styled(f"   {text}" if text else "", style)

    def block(self, text: str) -> None:
        """Several lines below the heading."""
        for each in text.splitlines():
            self.line(each)

    def raw(self, text: str) -> None:
        """Text as it streams."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def quote(self, prompt: str) -> None:
        """The prompt, apart from what follows it."""
        if self._console is None:
            self.raw(prompt)
        else:
            self._console.print(prompt, style="dim", end="", markup=False, soft_wrap=True)

    def fleet(self, snapshot: FleetSnapshot) -> None:
        """The table of nodes."""
        if self._console is None:
            self.block(f"{heading(snapshot)}\n{plain_table(COLUMNS, rows(snapshot.nodes))}")
        else:
            self._console.print(rich_table(COLUMNS, rows(snapshot.nodes), title=heading(snapshot)))

    def _styled(self, text: str, style: str) -> None:
        if self._console is None:
            self.raw(text + "\n")
        else:
            self._console.print(text, style=style or None, markup=False, soft_wrap=True)


@dataclass(slots=True)
class Verdicts:
    """What must hold, and whether it did."""

    stage: Stage
    broken: list[str] = field(default_factory=list)

    def check(self, claim: str, *, holds: bool) -> None:
        """Prints the claim with its verdict, and remembers a broken one."""
        self.stage.line(f"{'✓' if holds else '✗'} {claim}", "green" if holds else "bold red")
        if not holds:
            self.broken.append(claim)


@dataclass(frozen=True, slots=True)
class Cast:
    """Everyone on stage."""

    stage: Stage
    verdicts: Verdicts
    fleet: LocalFleet
    verifier: AgentProcess
    proposer: AgentProcess
    model: str

    def question(self, max_tokens: int) -> Question:
        """The prompt, to be continued by exactly `max_tokens` tokens."""
        return Question(
            model=model_id_of(self.model),
            prompt=PROMPT,
            max_tokens=max_tokens,
            stop_at_eos=False,
        )


def main() -> int:
    """Shows everything; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verifier", metavar="MODEL", default="tiny", help="default: tiny")
    model: str = parser.parse_args().verifier
    stage = Stage()
    verdicts = Verdicts(stage)
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    fleet = LocalFleet(f"demo-{secrets.token_hex(4)}")
    try:
        with fleet:
            cast = _open(stage, verdicts, fleet, model)
            asyncio.run(_play(cast))
    except KeyboardInterrupt:
        stage.line("stopped; every agent was ended")
        return 130
    except (AgentProcessFailed, CommandFailed, KakeyaError) as error:
        verdicts.check(str(error), holds=False)
    seconds = seconds_text(time.monotonic() - started)
    if verdicts.broken:
        stage.line(f"{len(verdicts.broken)} did not hold, after {seconds}", "bold red")
        return 1
    stage.line()
    stage.line(f"everything held, in {seconds}; no process is left behind", "bold green")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _open(stage: Stage, verdicts: Verdicts, fleet: LocalFleet, model: str) -> Cast:
    """Starts the two agents; the second one knows the first as its seed peer."""
    stage.scene("Two agents, each a process of its own")
    verifier = fleet.start("mini-1", serve=[f"verifier={model}"], mdns=True)
    started = time.monotonic()
    address = verifier.address
    _introduce(stage, verifier, f"verifier={model_id_of(model)}", started)
    started = time.monotonic()
    proposer = fleet.start("mini-2", serve=["proposer=ngram"], peers=[address])
    _introduce(stage, proposer, "proposer=ngram", started)
    joined = verifier.wait_for("peer_joined", _is(proposer), seconds=MEETING_SECONDS)
    proposer.wait_for("peer_joined", _is(verifier), seconds=MEETING_SECONDS)
    met = seconds_text(time.monotonic() - started)
    verdicts.check(
        f"mini-1 and mini-2 found each other through the seed peer, {met} after the start",
        holds=joined.get("name") == "mini-2",
    )
    return Cast(stage, verdicts, fleet, verifier, proposer, model)


def _introduce(stage: Stage, agent: AgentProcess, role: str, started: float) -> None:
    address = agent.address
    waited = seconds_text(time.monotonic() - started)
    stage.line(
        f"{agent.options.name}  {role:<14}  {address}  process {agent.pid}, ready in {waited}"
    )


def _is(agent: AgentProcess) -> Callable[[Event], bool]:
    node_id = agent.node_id
    return lambda event: event.get("node_id") == node_id


async def _play(cast: Cast) -> None:
    await asyncio.to_thread(_meet_by_multicast, cast)
    words = open_tokenizer(cast.model, None)
    async with AsyncClient(cast.verifier.address) as client:
        players = Players(client, words, *await _fleet_and_plan(cast, client))
        await _answer_both_ways(cast, players)
        await _lose_the_proposer(cast, players)
        cast.stage.fleet(await client.fleet.snapshot())


@dataclass(frozen=True, slots=True)
class Players:
    """What every answer needs."""

    client: AsyncClient
    words: TextTokenizer
    plan: Plan
    choice: SpeculationChoice


def _meet_by_multicast(cast: Cast) -> None:
    """A third agent without a seed peer, for a moment: only multicast DNS can help it."""
    host = cast.verifier.address.rpartition(":")[0]
    fault = multicast_fault(host)
    if fault is not None:
        cast.stage.line(f"multicast DNS cannot be shown: {fault}")
        return
    third = cast.fleet.start("mini-3", serve=["proposer=ngram"], mdns=True)
    started = time.monotonic()
    _introduce(cast.stage, third, "proposer=ngram", started)
    ready = time.monotonic()
    try:
        third.wait_for("peer_joined", seconds=MULTICAST_SECONDS)
        waited = seconds_text(time.monotonic() - ready)
        cast.stage.line(
            f"mini-3, without a seed peer, found the fleet by multicast DNS in {waited}"
        )
    except AgentProcessFailed:
        cast.stage.line(
            f"mini-3 did not find the fleet: no multicast DNS came over the interface of {host} "
            f"within {seconds_text(MULTICAST_SECONDS)}"
        )
    third.stop()
    cast.stage.line("mini-3 left again")


async def _fleet_and_plan(cast: Cast, client: AsyncClient) -> tuple[Plan, SpeculationChoice]:
    stage = cast.stage
    stage.scene("The fleet, as mini-1 sees it")
    snapshot = await client.fleet.snapshot()
    stage.fleet(snapshot)
    alive = {node.name for node in snapshot.nodes if node.liveness is Liveness.ALIVE}
    cast.verdicts.check("both nodes are alive", holds={"mini-1", "mini-2"} <= alive)

    stage.scene("The plan")
    plan = await client.fleet.plan(model_id_of(cast.model), context_tokens=1024)
    for line in plan_lines(plan):
        stage.line(line)
    question = cast.question(SHORT_TOKENS)
    choice = await choose_proposer(client, question)
    paired = isinstance(choice, Speculation) and choice.node_id == cast.proposer.node_id
    cast.verdicts.check("mini-2 drafts for mini-1", holds=paired)
    return plan, choice


async def _answer_both_ways(cast: Cast, players: Players) -> None:
    stage = cast.stage
    stage.scene("The answer of mini-1, with drafts from mini-2")
    drafted = await _stream(stage, players, cast.question(SHORT_TOKENS))
    stage.line(_speed_line(drafted))
    stage.line(drafts_text(drafted.done, drafted.plan))
    stage.block(draw_timeline(drafted.done.timeline, brush=brush_for(sys.stdout)))

    stage.scene("The same prompt, mini-1 alone")
    alone = await answer(players.client, cast.question(SHORT_TOKENS), players.words, "off")
    stage.line(_speed_line(alone))
    result = Comparison(PROMPT, drafted, alone)
    _compare(cast, result)
    with_drafts, without = result.speeds
    stage.line(f"{ratio_text(with_drafts, without)} the speed of the verifier alone")
    cast.verdicts.check(
        f"{result.drafted_count} drafted tokens took part", holds=result.drafted_count > 0
    )


async def _lose_the_proposer(cast: Cast, players: Players) -> None:
    stage = cast.stage
    stage.scene("The proposer dies in mid-answer")
    committed = 0
    drafted_before = 0
    killed_after = 0

    def take(tokens: Tokens) -> None:
        nonlocal committed, drafted_before, killed_after
        committed += len(tokens.token_ids)
        if killed_after:
            return
        drafted_before += tokens.drafted_count
        if committed >= LONG_TOKENS // 3 and drafted_before:
            cast.proposer.kill()
            killed_after = committed

    question = cast.question(LONG_TOKENS)
    interrupted = await answer(
        players.client, question, players.words, players.choice, on_tokens=take
    )
    stage.line(
        f"killed mini-2 (process {cast.proposer.pid}) after {killed_after} of "
        f"{len(interrupted.token_ids)} tokens, {drafted_before} of them drafted by it"
    )
    stage.line(_speed_line(interrupted))
    for line in fault_lines(interrupted.done):
        stage.line(line)
    cast.verdicts.check(
        "the proposer was killed in mid-answer, and the answer came to its end",
        holds=0 < killed_after < LONG_TOKENS == len(interrupted.token_ids),
    )
    cast.verdicts.check(
        "the end says what happened to it",
        holds=bool(interrupted.done.speculation.faults)
        or interrupted.done.speculation.drop_reason is not None,
    )
    alone = await answer(players.client, question, players.words, "off")
    _compare(cast, Comparison(PROMPT, interrupted, alone))


async def _stream(stage: Stage, players: Players, question: Question) -> Answer:
    """Prints the prompt and the answer as it comes."""
    stream = TextStream(players.words)
    stage.quote(question.prompt)
    result = await answer(
        players.client,
        question,
        players.words,
        players.choice,
        on_tokens=lambda tokens: stage.raw(stream.push(tokens.token_ids)),
    )
    stage.raw(stream.end() + "\n\n")
    return result


def _speed_line(result: Answer) -> str:
    done = result.done
    return (
        f"{done.generated_token_count} tokens, {speed_text(tokens_per_second(done))}, "
        f"acceptance length {done.speculation.acceptance_length:.2f}, "
        f"{forwards_per_token(done):.2f} forwards per token"
    )


def _compare(cast: Cast, result: Comparison) -> None:
    stage = cast.stage
    stage.line(f"with drafts  sha256 {result.drafted.digest}")
    stage.line(f"alone        sha256 {result.alone.digest}")
    claim = "identical" if result.identical else f"DIFFERENT from token {result.first_difference}"
    cast.verdicts.check(claim, holds=result.identical)


if __name__ == "__main__":
    sys.exit(main())

"""Three nodes, one answer: the fleet, shown in one go.

Starts agents as processes of their own on loopback, lets them find each other,
asks for a plan, has a published model answer a chat with drafts from another node
while most of the chat lies outside the verifier's window, checks the answer against
the verifier alone, then kills the node that drafts and restores in mid-answer and
checks again. With `--verifier tiny` the shipped model continues a Python file, a
diffusion model drafts for it, and a fact that has left the window is asked for. Exit
code 0 only when everything held; leaves no process behind.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType

from kakeya import (
    AsyncClient,
    KakeyaError,
    Liveness,
    Speculation,
    SpeculationChoice,
    Tokens,
)
from kakeya_fleet.node.cli.answers.answer import Answer, Question, answer
from kakeya_fleet.node.cli.answers.comparison import Comparison, choose_proposer
from kakeya_fleet.node.cli.asking.kv_options import KvChoice
from kakeya_fleet.node.cli.asking.tokenizer import TextTokenizer, model_id_of, tokenizer_of
from kakeya_fleet.node.cli.fleet.plan_text import plan_lines
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.terminal.output import brush_for
from kakeya_fleet.node.cli.terminal.quantities import ratio_text, seconds_text, speed_text
from kakeya_fleet.node.cli.terminal.statistics_text import (
    drafts_text,
    fault_lines,
    forwards_per_token,
    tokens_per_second,
)
from kakeya_fleet.node.cli.terminal.timeline import bar_width, draw_timeline
from kakeya_fleet.node.membership.network import multicast_fault
from scripts.demo_stage import Stage, Verdicts
from scripts.support.agent_process import AgentProcess, AgentProcessFailed, Event, LocalFleet

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
# Much of the answer stands in the class, which has left the window, and code is easy to guess.
CHAT = """Write this Python class again, with a docstring for each method:

class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()

    def peek(self):
        return self.items[-1]

    def is_empty(self):
        return len(self.items) == 0"""
SHORT_TOKENS = 200
LONG_TOKENS = 450
# A chat's answer ends by itself, and a model of 135 million parameters is no faster on two cores.
CHAT_TOKENS = 100
LONG_CHAT_TOKENS = 90
MULTICAST_SECONDS = 6.0
MEETING_SECONDS = 15.0
PUBLISHED_VERIFIER = "smollm2"
SHIPPED_VERIFIER = "tiny"
DRAFTERS = {"smollm2": "smollm2-dflash", "tiny": "tiny-dflash"}
"""Those that were trained for a verifier."""
ARCHIVE = "archive=256MiB"
RESTORED = KvChoice("restored", sink_tokens=4, window_tokens=64, restorer="projection")
REMEMBERING = (
    ("full attention", KvChoice("full")),
    ("sink 4 + window 64", KvChoice("sink_window", sink_tokens=4, window_tokens=64)),
    ("the same, restored by projection", RESTORED),
    ("the same, restored by archive", replace(RESTORED, restorer="archive")),
)
FACT, QUESTION, FACTS_ANSWER = "\n# fact: river = copper", "\n# recall: river =", " copper"
FILLER = inspect.getsource(shlex.split) + inspect.getsource(shlex.join)


@dataclass(slots=True)
class Show:
    """The stage, the agents that were started, and the verifier's model."""

    stage: Stage
    verdicts: Verdicts
    fleet: LocalFleet
    model: str
    agents: list[AgentProcess] = field(default_factory=list)
    prompt: str = PROMPT

    @property
    def is_chat(self) -> bool:
        """Whether the model answers a chat, and does not continue a file."""
        return self.model == PUBLISHED_VERIFIER

    @property
    def short_tokens(self) -> int:
        """Tokens of the answer that is shown."""
        return CHAT_TOKENS if self.is_chat else SHORT_TOKENS

    @property
    def long_tokens(self) -> int:
        """Tokens of the answer in which a node dies."""
        return LONG_CHAT_TOKENS if self.is_chat else LONG_TOKENS

    @property
    def is_shipped(self) -> bool:
        """Whether the verifier is the one with a learned map of its own."""
        return self.model == SHIPPED_VERIFIER

    @property
    def drafter(self) -> str:
        """The one that was trained for the verifier, or for any other prompt lookup."""
        return DRAFTERS.get(self.model, "ngram")

    @property
    def kv(self) -> KvChoice:
        """A small window, and what has left it restored."""
        return RESTORED if self.is_shipped else replace(RESTORED, restorer="archive")

    def start(self, name: str, *roles: str, peers: Sequence[str] = (), mdns: bool) -> AgentProcess:
        """Starts an agent, waits until it is ready, and introduces it."""
        started = time.monotonic()
        agent = self.fleet.start(name, serve=roles, peers=peers, mdns=mdns)
        self.agents.append(agent)
        # Known once it is ready.
        address = agent.address
        waited = seconds_text(time.monotonic() - started)
        self.stage.line(
            f"{name}  {', '.join(roles):<36}  {address:<15}  process {agent.pid}, ready in {waited}"
        )
        return agent

    def question(self, max_tokens: int, *, may_end: bool = False) -> Question:
        """The prompt, to be continued by `max_tokens` tokens, fewer only if it `may_end`."""
        return Question(
            model=model_id_of(self.model),
            prompt=self.prompt,
            max_tokens=max_tokens,
            kv=self.kv,
            stop_at_eos=may_end and self.is_chat,
        )


@dataclass(frozen=True, slots=True)
class Cast:
    """The nodes that decide and that draft, and what every answer needs."""

    verifier: AgentProcess
    proposer: AgentProcess
    client: AsyncClient
    words: TextTokenizer


def main() -> int:
    """Shows everything; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--verifier",
        metavar="MODEL",
        default=PUBLISHED_VERIFIER,
        help=f"default: {PUBLISHED_VERIFIER}; {SHIPPED_VERIFIER} has a map of what it evicts",
    )
    model: str = parser.parse_args().verifier
    stage = Stage()
    show = Show(stage, Verdicts(stage), LocalFleet(f"demo-{secrets.token_hex(4)}"), model)
    started = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    # A process started in a shell's background inherits that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _perform(show)
    except KeyboardInterrupt:
        stage.line("stopped", "bold red")
        return 130
    seconds = seconds_text(time.monotonic() - started)
    if show.verdicts.broken:
        stage.line(f"{len(show.verdicts.broken)} did not hold, after {seconds}", "bold red")
        return 1
    stage.line(f"everything held, in {seconds}", "bold green")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _perform(show: Show) -> None:
    """Plays every scene; ends every agent, whatever happens."""
    verdicts = show.verdicts
    try:
        verifier, proposer = _meet_by_seed_peer(show)
        _meet_by_multicast(show, verifier)
        asyncio.run(_play(show, verifier, proposer))
    except (AgentProcessFailed, CommandFailed, KakeyaError) as error:
        verdicts.check(str(error), holds=False)
    finally:
        # A second Ctrl-C must not leave an agent behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        show.fleet.stop()
    left = [agent.options.name for agent in show.agents if agent.running]
    show.stage.line()
    verdicts.check("no process is left behind", holds=not left)


def _meet_by_seed_peer(show: Show) -> tuple[AgentProcess, AgentProcess]:
    """Starts the two agents; the second one knows the first as its seed peer."""
    show.stage.scene("Three agents, each a process of its own")
    verifier = show.start("mini-1", f"verifier={show.model}", mdns=True)
    roles = (f"proposer={show.drafter}", ARCHIVE)
    proposer = show.start("mini-2", *roles, peers=[verifier.address], mdns=False)
    ready = time.monotonic()
    joined = verifier.wait_for("peer_joined", _is(proposer), seconds=MEETING_SECONDS)
    proposer.wait_for("peer_joined", _is(verifier), seconds=MEETING_SECONDS)
    met = seconds_text(time.monotonic() - ready)
    show.verdicts.check(
        f"mini-1 and mini-2 found each other through the seed peer, {met} after both were ready",
        holds=joined.get("name") == "mini-2",
    )
    return verifier, proposer


def _is(agent: AgentProcess) -> Callable[[Event], bool]:
    node_id = agent.node_id
    return lambda event: event.get("node_id") == node_id


def _meet_by_multicast(show: Show, verifier: AgentProcess) -> None:
    """A third agent without a seed peer: only multicast DNS can help it; else it is given one."""
    host = verifier.address.rpartition(":")[0]
    fault = multicast_fault(host)
    if fault is None:
        third = show.start("mini-3", ARCHIVE, mdns=True)
        ready = time.monotonic()
        try:
            third.wait_for("peer_joined", seconds=MULTICAST_SECONDS)
            waited = seconds_text(time.monotonic() - ready)
            show.stage.line(f"mini-3, without a seed peer, found them by multicast DNS, {waited}")
        except AgentProcessFailed:
            third.stop()
            fault = f"none came over the interface of {host} within {MULTICAST_SECONDS:g} s"
    if fault is not None:
        show.stage.line(f"multicast DNS cannot be shown: {fault}")
        third = show.start("mini-3", ARCHIVE, peers=[verifier.address], mdns=False)
    verifier.wait_for("peer_joined", _is(third), seconds=MEETING_SECONDS)


async def _play(show: Show, verifier: AgentProcess, proposer: AgentProcess) -> None:
    async with AsyncClient(verifier.address) as client:
        words = await tokenizer_of(client, model_id_of(show.model), show.model, None)
        if show.is_chat:
            show.prompt = words.codec.render_chat([{"role": "user", "content": CHAT}])
        cast = Cast(verifier, proposer, client, words)
        choice = await _fleet_and_plan(show, cast)
        await _answer_both_ways(show, cast, choice)
        if show.is_shipped:
            await _remember(show, cast)
        await _lose_the_proposer(show, cast, choice)
        show.stage.line()
        show.stage.fleet(await client.fleet.snapshot())


async def _fleet_and_plan(show: Show, cast: Cast) -> SpeculationChoice:
    stage = show.stage
    stage.scene("The fleet, as mini-1 sees it")
    snapshot = await cast.client.fleet.snapshot()
    stage.fleet(snapshot)
    alive = {node.name for node in snapshot.nodes if node.liveness is Liveness.ALIVE}
    show.verdicts.check("all three nodes are alive", holds={"mini-1", "mini-2", "mini-3"} <= alive)

    stage.scene("The plan")
    question = show.question(show.short_tokens)
    plan = await cast.client.fleet.plan(
        question.model, context_tokens=1024, kv_strategy="restored", window_tokens=64
    )
    for line in plan_lines(plan):
        stage.line(line)
    choice = await choose_proposer(cast.client, question)
    if plan.proposer is None:
        stage.line("the demonstration pairs the two all the same")
    paired = isinstance(choice, Speculation) and choice.node_id == cast.proposer.node_id
    show.verdicts.check("mini-2 drafts for mini-1", holds=paired)
    return choice


async def _answer_both_ways(show: Show, cast: Cast, choice: SpeculationChoice) -> None:
    stage = show.stage
    question = show.question(show.short_tokens, may_end=True)
    stage.scene("The answer of mini-1, with drafts from mini-2, and a window of 64 tokens")
    drafted = await _stream(show, cast, question, choice)
    stage.line(_speed_line(drafted))
    stage.line(drafts_text(drafted.done, drafted.plan))
    stage.line()
    width = bar_width(stage.width)
    stage.block(draw_timeline(drafted.done.timeline, width=width, brush=brush_for(sys.stdout)))

    stage.scene("The same prompt, mini-1 alone")
    alone = await answer(cast.client, question, cast.words, "off")
    stage.line(_speed_line(alone))
    result = Comparison(show.prompt, drafted, alone)
    with_drafts, without = result.speeds
    stage.line(f"with drafts {ratio_text(with_drafts, without)} the speed of the verifier alone")
    _compare(show, result)
    show.verdicts.check(
        f"{result.drafted_count} drafted tokens took part", holds=result.drafted_count > 0
    )


async def _remember(show: Show, cast: Cast) -> None:
    stage = show.stage
    stage.scene("A fact that has left the window")
    prompt = f"{FACT}\n{FILLER}{QUESTION}"
    stage.line(f"{FACT.strip()} ... {len(cast.words.encode(prompt))} tokens ... {QUESTION.strip()}")
    said = {}
    for name, kv in REMEMBERING:
        question = Question(model_id_of(show.model), prompt, max_tokens=1, kv=kv)
        result = await answer(cast.client, question, cast.words, "off")
        said[name] = cast.words.decode(list(result.token_ids))
        stage.line(f"{name:<34}{said[name]!r}")
    remembered = [word == FACTS_ANSWER for word in said.values()]
    show.verdicts.check(
        "full attention knows it, the window alone does not, and both restorers bring it back",
        holds=remembered == [True, False, True, True],
    )


async def _lose_the_proposer(show: Show, cast: Cast, choice: SpeculationChoice) -> None:
    stage = show.stage
    stage.scene("The node that drafts and restores dies in mid-answer")
    assassin = Assassin(cast.proposer, show.long_tokens)
    question = show.question(show.long_tokens)
    lost = await answer(cast.client, question, cast.words, choice, on_tokens=assassin.take)
    stage.line(
        f"killed mini-2 (process {cast.proposer.pid}) after {assassin.killed_after} of "
        f"{len(lost.token_ids)} tokens, {assassin.drafted} of them drafted by it"
    )
    stage.line(_speed_line(lost))
    for line in fault_lines(lost.done):
        stage.line(line)
    _tell_of_the_archive(show, cast, lost)
    show.verdicts.check(
        "killed in mid-answer, and the answer came to its end",
        holds=0 < assassin.killed_after < show.long_tokens == len(lost.token_ids),
    )
    numbers = lost.done.speculation
    show.verdicts.check(
        "the end of the answer says what happened to the proposer",
        holds=bool(numbers.faults) or numbers.drop_reason is not None,
    )
    alone = await answer(cast.client, question, cast.words, "off")
    _compare(show, Comparison(show.prompt, lost, alone))


def _tell_of_the_archive(show: Show, cast: Cast, lost: Answer) -> None:
    """What was evicted lay on mini-2, or on mini-3 where that was the nearer one."""
    archive = lost.plan.archive
    if archive is not None and archive.node_id != cast.proposer.node_id:
        show.stage.line(f"what was evicted lay on {archive.node_name}, which lives")
        return
    count = lost.done.restorer_rebuild_count
    show.verdicts.check(
        "what mini-2 kept was made anew from the history, on mini-3", holds=count >= 1
    )


@dataclass(slots=True)
class Assassin:
    """Kills the proposer once a third of the answer is there, some of it drafted."""

    victim: AgentProcess
    token_count: int
    committed: int = 0
    drafted: int = 0
    killed_after: int = 0

    def take(self, tokens: Tokens) -> None:
        """Counts, and strikes once."""
        self.committed += len(tokens.token_ids)
        if self.killed_after:
            return
        self.drafted += tokens.drafted_count
        if self.committed >= self.token_count // 3 and self.drafted:
            self.victim.kill()
            self.killed_after = self.committed


async def _stream(show: Show, cast: Cast, question: Question, choice: SpeculationChoice) -> Answer:
    """Prints the prompt, or what was asked of a chat, and the answer as it comes."""
    stage, text = show.stage, cast.words.stream()
    stage.quote(f"you: {CHAT}\n\n{show.model}: " if show.is_chat else question.prompt)
    result = await answer(
        cast.client,
        question,
        cast.words,
        choice,
        on_tokens=lambda tokens: stage.raw(text.push(tokens.token_ids)),
    )
    stage.raw(text.flush() + "\n\n")
    return result


def _speed_line(result: Answer) -> str:
    done = result.done
    return (
        f"{done.generated_token_count} tokens, {speed_text(tokens_per_second(done))}, "
        f"acceptance length {done.speculation.acceptance_length:.2f}, "
        f"{forwards_per_token(done):.2f} forwards per token"
    )


def _compare(show: Show, result: Comparison) -> None:
    show.stage.line(f"with drafts  sha256 {result.drafted.digest}")
    show.stage.line(f"alone        sha256 {result.alone.digest}")
    claim = "identical" if result.identical else f"DIFFERENT from token {result.first_difference}"
    show.verdicts.check(claim, holds=result.identical)


if __name__ == "__main__":
    sys.exit(main())

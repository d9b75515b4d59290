"""What the tenth turn of a chat costs over HTTP, whose clients send all of it each time.

    python -m scripts.bench.stateless_chat --rounds 5 --out benchmarks/stateless_chat.json

An agent in a process of its own serves the verifier. A conversation is held by each side at once,
turn by turn, in an order shuffled anew every turn: a chat of the SDK, which appends to its session
what is new; /v1/chat/completions as any client asks it, where the node goes on with the session of
the turn before; and the same with {"kakeya": {"reuse": false}}, where each turn computes all of it.
All say the same, greedily, or the run fails. Told are, by turn, the medians of the seconds to the
first text; of the last turns, the median of their ratios round by round.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai

from kakeya import Client
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import AgentProcess, LocalFleet

GOAL = 1.3
"""The first token of the last turn takes at most so many times the session's."""
SIDES = ("session", "http", "http_fresh")
Say = Callable[[str], Iterator[str]]
"""One turn: the question, and the pieces of its answer."""


def question(round_number: int, turn: int, words: int) -> str:
    """Text of so many words, other in every round and turn."""
    rng = random.Random(f"{round_number} {turn}")
    names = ["value", "header", "line", "index", "result", "buffer", "parser", "token"]
    return f"Turn {turn} of {round_number}: " + " ".join(rng.choice(names) for _ in range(words))


@contextmanager
def by_session(address: str, arguments: argparse.Namespace) -> Iterator[Say]:
    """A chat as an application holds it."""
    with (
        Client(address) as client,
        client.chat(arguments.verifier, kv_strategy="full", speculation="off") as chat,
    ):
        bias = dict.fromkeys(client.text(arguments.verifier).stop_token_ids, -math.inf)

        def say(text: str) -> Iterator[str]:
            yield from chat.say(text, max_tokens=arguments.tokens, logit_bias=bias)

        yield say


@contextmanager
def by_http(address: str, arguments: argparse.Namespace, *, reuse: bool) -> Iterator[Say]:
    """The official client, which sends the whole conversation."""
    with (
        openai.OpenAI(base_url=f"http://{address}/v1", api_key="none") as client,
        Client(arguments.grpc) as own,
    ):
        stops = own.text(arguments.verifier).stop_token_ids
        messages: list[Any] = []

        def say(text: str) -> Iterator[str]:
            messages.append({"role": "user", "content": text})
            stream = client.chat.completions.create(
                model=arguments.verifier,
                messages=messages,
                max_tokens=arguments.tokens,
                temperature=0,
                stream=True,
                logit_bias={str(each): -100 for each in stops},
                extra_body={"kakeya": {"speculation": "off", "reuse": reuse}},
            )
            said = []
            for chunk in stream:
                said.append(chunk.choices[0].delta.content or "")
                yield said[-1]
            messages.append({"role": "assistant", "content": "".join(said)})

        yield say


def first_seconds(say: Say, text: str) -> tuple[float, str]:
    """Seconds to the first text of an answer, and all of it."""
    began, first, pieces = time.perf_counter(), 0.0, []
    for piece in say(text):
        if piece and not first:
            first = time.perf_counter() - began
        pieces.append(piece)
    return first, "".join(pieces)


def run(agent: AgentProcess, arguments: argparse.Namespace) -> Mapping[str, list[list[float]]]:
    """Of each side, by round, the seconds of each turn. Raises SystemExit when they disagree."""
    order = random.Random(arguments.seed)
    http = str(agent.ready["http_address"])
    arguments.grpc = agent.address
    measured: dict[str, list[list[float]]] = {side: [] for side in SIDES}
    # The first round, which is not counted, opens connections and fetches the tokenizer.
    for number in range(arguments.rounds + 1):
        with ExitStack() as stack:
            says = {
                "session": stack.enter_context(by_session(agent.address, arguments)),
                "http": stack.enter_context(by_http(http, arguments, reuse=True)),
                "http_fresh": stack.enter_context(by_http(http, arguments, reuse=False)),
            }
            turns: dict[str, list[float]] = {side: [] for side in SIDES}
            for turn in range(1, arguments.turns + 1):
                names = list(SIDES)
                order.shuffle(names)
                said = set()
                for name in names:
                    asked = question(number, turn, arguments.words)
                    seconds, text = first_seconds(says[name], asked)
                    turns[name].append(seconds)
                    said.add(text)
                if len(said) != 1:
                    raise SystemExit(f"the sides disagree in turn {turn} of round {number}: {said}")
        if number:
            for name, seconds_by_turn in turns.items():
                measured[name].append(seconds_by_turn)
    return measured


def by_turn(rounds: Sequence[Sequence[float]]) -> list[float]:
    """The median of each turn."""
    return [statistics.median(turn) for turn in zip(*rounds, strict=True)]


def ratio_of_last(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> float:
    """The median of the last turns' ratios, round by round: both had the same machine."""
    return statistics.median(mine[-1] / theirs[-1] for mine, theirs in zip(one, other, strict=True))


def main(words: Sequence[str] | None = None) -> int:
    """Starts the agent, measures, writes the report; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--verifier", default="tiny", help="a shipped name or a hub id")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--words", type=int, default=60, help="of a question")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/stateless_chat.json"))
    arguments = parser.parse_args(words)
    with LocalFleet("bench-stateless") as fleet:
        agent = fleet.start("one", serve=[f"verifier={arguments.verifier}"])
        measured = run(agent, arguments)
    sides = {name: by_turn(rounds) for name, rounds in measured.items()}
    last = {name: turns[-1] for name, turns in sides.items()}
    ratio = ratio_of_last(measured["http"], measured["session"])
    report = {
        "command": command(__file__),
        "machine": machine(),
        "verifier": arguments.verifier,
        "turns": arguments.turns,
        "words_a_question": arguments.words,
        "tokens_an_answer": arguments.tokens,
        "rounds": arguments.rounds,
        "seed": arguments.seed,
        "first_token_seconds_by_turn": sides,
        "last_turn": {
            "http_to_session": ratio,
            "goal": GOAL,
            "fresh_to_session": ratio_of_last(measured["http_fresh"], measured["session"]),
            "fresh_to_http": ratio_of_last(measured["http_fresh"], measured["http"]),
        },
    }
    write_report(arguments.out, report)
    print(json.dumps({"last_turn": report["last_turn"], "seconds": last}, indent=2))
    return int(ratio > GOAL)


if __name__ == "__main__":
    sys.exit(main())

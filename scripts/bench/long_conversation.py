"""Hundreds of turns of a chat in one restored session, through the SDK and between two nodes.

    python -m scripts.bench.long_conversation --turns 200

One agent serves the verifier, another an archive, on one machine. A person asks about this and
that, and asks again; answers are short, so that the model's positions suffice. Told are by tenth of
the turns their seconds, the tokens that the verifier's session takes, what the archive keeps, and
both processes' resident memory. Afterwards a session of full attention reads the same history, and
at the beginning of each answer a fork of it is asked what it would say: how many answers are equal.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from kakeya import Client
from kakeya_fleet.engine.sessions.acceptance import accepted_prefix
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import AgentProcess, LocalFleet
from scripts.train.topics import TASKS, THINGS, TOPICS, split

ASKED = (
    (TOPICS, ("What is the point of {}?", "Tell me about {}.", "Why do people like {}?")),
    (THINGS, ("Name three {}.", "Which {} do you know?")),
    (TASKS, ("How do I {}?", "What do I need to {}?")),
)
AGAIN = ("Why?", "Are you sure?", "Say it shorter.", "And then?", "Give an example.")
AGAIN_SHARE = 0.3
TENTHS = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """What one took, and the history at its end, whose last tokens are the answer.

    A model's template may write earlier turns anew: later histories need not begin with it.
    """

    seconds: float
    history: tuple[int, ...]
    answer_tokens: int
    verifier_bytes: int
    archive_bytes: int
    verifier_resident: int
    archive_resident: int


def questions(count: int, seed: int) -> Iterator[str]:
    """What a person says, turn by turn."""
    rng = random.Random(seed)
    for number in range(count):
        if number and rng.random() < AGAIN_SHARE:
            yield rng.choice(AGAIN)
            continue
        subjects, forms = rng.choice(ASKED)
        yield rng.choice(forms).format(rng.choice(split(subjects)))


def talk(
    verifier: AgentProcess, archive: AgentProcess, arguments: argparse.Namespace
) -> list[Turn]:
    """All turns."""
    turns: list[Turn] = []
    processes = [psutil.Process(agent.pid) for agent in (verifier, archive)]
    with (
        Client(verifier.address) as client,
        client.chat(
            arguments.verifier,
            kv_strategy="restored",
            window_tokens=arguments.window,
            speculation="off",
        ) as chat,
    ):
        session = chat.session
        for asked in questions(arguments.turns, arguments.seed):
            began = time.perf_counter()
            answer = chat.say(asked, max_tokens=arguments.tokens, temperature=0.0)
            answer.text()
            seconds = time.perf_counter() - began
            done = answer.done
            assert done is not None
            info = session.info()
            assert info.restorer is not None
            resident = [process.memory_info().rss for process in processes]
            kept = info.restorer.evicted_bytes
            said = session.history, done.generated_token_count
            turns.append(Turn(seconds, *said, info.kv_bytes, kept, *resident))
        return turns


def equal_answers(address: str, model: str, turns: Sequence[Turn]) -> list[bool]:
    """Whether full attention says each answer behind the same history."""
    found = []
    with Client(address) as client, client.create_session(model, kv_strategy="full") as session:
        for turn in turns:
            before = turn.history[: -turn.answer_tokens]
            alike = accepted_prefix(session.history, before)
            if alike < session.history_length:
                session.rewind(alike)
            session.append(before[alike:])
            with session.fork() as fork:
                said = [*fork.generate(turn.answer_tokens, temperature=0.0).ids()]
            found.append(said == list(turn.history[-turn.answer_tokens :]))
    return found


def by_tenth(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Medians of seconds, and the last of what is kept."""
    count = min(TENTHS, len(turns))
    cuts = [len(turns) * part // count for part in range(count + 1)]
    parts = [turns[first:end] for first, end in pairwise(cuts)]
    return [
        {
            "history_tokens": len(part[-1].history),
            "turn_seconds_p50": statistics.median(turn.seconds for turn in part),
            "verifier_bytes": part[-1].verifier_bytes,
            "archive_bytes": part[-1].archive_bytes,
            "verifier_resident_bytes": part[-1].verifier_resident,
            "archive_resident_bytes": part[-1].archive_resident,
        }
        for part in parts
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Talks, compares, and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--verifier", default="smollm2")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=16, help="of an answer, at most")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--dtype", default="auto", help="the verifier's: auto, float32, bfloat16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/long_conversation.json"))
    arguments = parser.parse_args(words)
    with LocalFleet("bench-conversation") as fleet:
        environment = {"KAKEYA_DTYPE": arguments.dtype}
        verifier = fleet.start(
            "verifier", serve=[f"verifier={arguments.verifier}"], environment=environment
        )
        archive = fleet.start("archive", serve=["archive=2GiB"], peers=[verifier.address])
        verifier.wait_for("peer_joined", lambda said: said.get("node_id") == archive.node_id)
        turns = talk(verifier, archive, arguments)
        equal = equal_answers(verifier.address, arguments.verifier, turns)
    tenths = by_tenth(turns)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "verifier": arguments.verifier,
        "dtype": arguments.dtype,
        "turns": len(turns),
        "history_tokens": len(turns[-1].history),
        "window_tokens": arguments.window,
        "seed": arguments.seed,
        "tenths": tenths,
        "last_over_first_turn": tenths[-1]["turn_seconds_p50"] / tenths[0]["turn_seconds_p50"],
        "answers_equal_to_full_attention": sum(equal),
        "first_that_differs": equal.index(False) + 1 if False in equal else None,
    }
    write_report(arguments.out, report)
    print(f"{sum(equal)} of {len(equal)} answers are full attention's")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What HTTP costs beside the SDK, and a thread a core: first token, tokens a second.

    python -m scripts.bench.http --rounds 10 --out benchmarks/http.json

An agent in a process of its own serves the verifier with as many threads as it chose,
another (`sdk_all_threads`) with a thread a core, as OMP_NUM_THREADS tells it. Each
prompt is answered by each side in turn, in an order shuffled anew every round: a
session of the SDK, HTTP's stream read by the standard library, HTTP's stream read by
OpenAI's client, and a session of the SDK at the other agent. All open a session, read
the prompt, write greedily, and close; all write the same text, or the run fails.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import openai

from kakeya import Client
from kakeya.text import TextCodec
from scripts.bench.machine import command, machine, write_report
from scripts.support.agent_process import AgentProcess, LocalFleet

PROMPTS = (
    "def parse_header(line):\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\ndef main(argv=None):\n",
)
Answer = Callable[[str], Iterator[str]]


@dataclass
class Measured:
    """Of each answer: seconds to its first text, and of the whole."""

    first_seconds: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def report(self, token_count: int) -> dict[str, float]:
        """Medians, and tokens a second of them all."""
        return {
            "first_token_seconds_median": statistics.median(self.first_seconds),
            "seconds_median": statistics.median(self.seconds),
            "tokens_per_second": token_count * len(self.seconds) / sum(self.seconds),
            "answers": len(self.seconds),
        }


def by_sdk(client: Client, codec: TextCodec, model: str, tokens: int) -> Answer:
    """A session as an application holds it."""
    stops = codec.stop_token_ids

    def answer(prompt: str) -> Iterator[str]:
        ids = codec.encode(prompt, add_special_tokens=True)
        detokenizer = codec.detokenizer(skip_special_tokens=True)
        with client.create_session(
            model,
            kv_strategy="full",
            max_history_tokens=len(ids) + tokens,
            speculation="off",
        ) as session:
            session.append(ids)
            for block in session.generate(tokens, logit_bias=dict.fromkeys(stops, -math.inf)):
                yield detokenizer.push(block.token_ids)
        yield detokenizer.flush()

    return answer


def asked(model: str, tokens: int, stops: Sequence[int]) -> dict[str, object]:
    """The fields of both HTTP sides; no answer ends before its last token."""
    return {
        "model": model,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "logit_bias": {str(each): -100 for each in stops},
    }


ALONE = {"kakeya": {"speculation": "off"}}


def by_http(address: str, fields: dict[str, object]) -> Answer:
    """The stream, read by the standard library over one connection."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port))

    def answer(prompt: str) -> Iterator[str]:
        body = json.dumps({**fields, **ALONE, "prompt": prompt})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", body, headers)
        response = connection.getresponse()
        for line in response:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])["choices"][0]["text"]

    return answer


def by_openai(address: str, fields: dict[str, object]) -> Answer:
    """The stream, read by the official client."""
    client = openai.OpenAI(base_url=f"http://{address}/v1", api_key="none")

    def answer(prompt: str) -> Iterator[str]:
        stream = client.completions.create(
            prompt=prompt,
            extra_body=ALONE,
            **fields,
        )
        for chunk in stream:
            yield chunk.choices[0].text

    return answer


def measure(side: Answer, prompt: str, into: Measured) -> str:
    """One answer's text."""
    began = time.perf_counter()
    first = 0.0
    pieces = []
    for piece in side(prompt):
        if piece and not first:
            first = time.perf_counter() - began
        pieces.append(piece)
    into.first_seconds.append(first)
    into.seconds.append(time.perf_counter() - began)
    return "".join(pieces)


def run(
    arguments: argparse.Namespace, agent: AgentProcess, all_threads: AgentProcess
) -> dict[str, Measured]:
    """All rounds; raises SystemExit when two sides disagree."""
    order = random.Random(arguments.seed)
    model = arguments.verifier
    http_address = str(agent.ready["http_address"])
    with Client(agent.address) as client, Client(all_threads.address) as other:
        codec = client.text(model)
        fields = asked(model, arguments.tokens, codec.stop_token_ids)
        sides: dict[str, Answer] = {
            "sdk": by_sdk(client, codec, model, arguments.tokens),
            "http": by_http(http_address, fields),
            "openai": by_openai(http_address, fields),
            "sdk_all_threads": by_sdk(other, codec, model, arguments.tokens),
        }
        measured = {name: Measured() for name in sides}
        # The first answers open connections and fetch the tokenizer.
        for side in sides.values():
            measure(side, PROMPTS[0], Measured())
        for _ in range(arguments.rounds):
            for prompt in PROMPTS:
                names = list(sides)
                order.shuffle(names)
                texts = {name: measure(sides[name], prompt, measured[name]) for name in names}
                if len(set(texts.values())) != 1:
                    raise SystemExit(f"the sides disagree on {prompt!r}: {texts}")
    return measured


def main() -> None:
    """Starts the agent, measures, writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--verifier", default="tiny", help="a shipped name or a hub id")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/http.json"))
    arguments = parser.parse_args()
    with LocalFleet("bench-http") as fleet:
        serve = [f"verifier={arguments.verifier}"]
        every = {"OMP_NUM_THREADS": str(os.cpu_count() or 1)}
        agents = fleet.start("one", serve=serve), fleet.start("two", serve=serve, environment=every)
        measured = run(arguments, *agents)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "verifier": arguments.verifier,
        "tokens_an_answer": arguments.tokens,
        "seed": arguments.seed,
        "sides": {name: each.report(arguments.tokens) for name, each in measured.items()},
    }
    write_report(arguments.out, report)
    print(json.dumps(report["sides"], indent=2))


if __name__ == "__main__":
    main()

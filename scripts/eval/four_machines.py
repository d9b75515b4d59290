"""Four machines of a network: three become a fleet by short codes, one of them is put out.

    python -m scripts.eval.four_machines --out benchmarks/four_machines.json

`init` on the first, `invite` there and `join CODE` on two others, over multicast DNS. A
program on the fourth machine, which is no member, has a key and the fleet's certificate. Its
answer is drafted for by the third machine, which is put out in mid-stream; told are whether
its tokens are those of the verifier alone, and how long the second machine went on knowing
the third one, from the moment at which the owner's command ended and from that at which it
began. The machines are network namespaces of this one: it takes root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kakeya import AsyncClient, Speculation, Tls
from kakeya.options import GenerateOptions
from scripts.bench.machine import command, machine, write_report
from scripts.faults.machines import Machine as Host
from scripts.faults.machines import Machines, what_is_missing
from scripts.support.child_process import ChildProcess

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
KEEPER, MEMBER, PUT_OUT, APPLICATION = range(4)
NAMES = ("keeper", "member", "guest")
TOKENS = 3000
BEFORE = 200
"""Tokens that the application has read when the third machine is put out."""
PERIOD_SECONDS = 1.0
"""Of the gossip, by default."""
KV: dict[str, Any] = {"kv_strategy": "sink_window", "sink_tokens": 4, "window_tokens": 64}
SAMPLED: GenerateOptions = {"temperature": 1.0, "seed": 11}
PROMPT = "def area(radius):\n"


def main() -> None:
    """Runs it, or the part of it that a machine does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=("application", "watcher"), help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "application":
        asyncio.run(application(*arguments.words))
        return
    if arguments.part == "watcher":
        asyncio.run(watcher(*arguments.words))
        return
    lacking = what_is_missing()
    if lacking:
        raise SystemExit(lacking)
    with tempfile.TemporaryDirectory(prefix="kakeya-four-") as home, ExitStack() as ended:
        report = {"command": command(__file__), "machine": machine(), **run(Path(home), ended)}
    print(json.dumps(report, indent=2))
    if arguments.out is not None:
        write_report(arguments.out, report)


def run(home: Path, ended: ExitStack) -> dict[str, object]:
    """The whole scene; what it started ends with `ended`."""
    hosts = ended.enter_context(Machines(4)).all
    machines = [Machine(host, index, home, ended) for index, host in enumerate(hosts)]
    keeper = machines[KEEPER]
    keeper.fleet("init", "home", "--name", NAMES[KEEPER])
    keeper.join("--serve", "verifier=tiny")
    for index, role in ((MEMBER, "archive=16MiB"), (PUT_OUT, "proposer=ngram")):
        code = json.loads(keeper.fleet("invite", "--json"))["short_code"]
        machines[index].join(code, "--serve", role)
    for each in machines[:APPLICATION]:
        each.knows(2)
    key = json.loads(keeper.fleet("key", "create", "application", "--json"))["key"]
    (home / "fleet.pem").write_text(keeper.fleet("certificate"))

    guest = machines[PUT_OUT].ready()["node_id"]
    watching = ended.enter_context(
        machines[MEMBER].part("watcher", machines[MEMBER].ready()["local_address"], guest)
    )
    watching.hear()
    address = keeper.ready()["applications_address"]
    reading = ended.enter_context(
        machines[APPLICATION].part("application", address, key, str(home / "fleet.pem"), guest)
    )
    alone = json.loads(reading.hear())
    before = json.loads(reading.hear())
    began = time.time()
    keeper.fleet("revoke", NAMES[PUT_OUT], "--json")
    revoked = time.time()
    gone = json.loads(watching.hear())["gone_unix"]
    drafted = json.loads(reading.hear())
    asked = machines[PUT_OUT].run("generate", "--verifier", "tiny", "--json", PROMPT)
    return {
        "tokens": TOKENS,
        "same_tokens": alone["token_ids"] == drafted["token_ids"],
        "accepted_before": before["accepted"],
        "accepted": drafted["accepted"],
        "resumptions": drafted["resumptions"],
        "command_seconds": revoked - began,
        "gone_after_command_seconds": max(0.0, gone - revoked),
        "gone_after_begin_seconds": gone - began,
        "period_seconds": PERIOD_SECONDS,
        "refused_afterwards": json.loads(asked.stdout)["error"]["reason"],
    }


async def application(address: str, key: str, certificate: str, proposer: str) -> None:
    """Says the stream of the verifier alone, that the drafted one goes on, and what it was."""
    tls = Tls(certificate, server_name="member.kakeya")
    async with AsyncClient(address, api_key=key, tls=tls) as client:
        text = await client.text("tiny")
        prompt = text.encode(PROMPT)
        async with await client.create_session("tiny", speculation="off", **KV) as session:
            await session.append(prompt)
            alone = (await session.generate(TOKENS, **SAMPLED).collect()).token_ids
        say(token_ids=alone)
        drafts = Speculation("ngram", node_id=proposer)
        async with await client.create_session("tiny", speculation=drafts, **KV) as session:
            await session.append(prompt)
            found: list[int] = []
            accepted = 0
            async for block in session.generate(TOKENS, **SAMPLED):
                found += block.token_ids
                accepted += block.drafted_count
                if len(found) - len(block.token_ids) < BEFORE <= len(found):
                    say(tokens=len(found), accepted=accepted)
            say(token_ids=found, accepted=accepted, resumptions=len(session.resumptions))


async def watcher(address: str, node_id: str) -> None:
    """Says that it sees the node at `address`'s fleet, and when it does not any more."""
    async with AsyncClient(address) as client, client.fleet.watch() as changes:
        seen = False
        async for _ in changes:
            known = {node.node_id for node in await client.fleet.nodes()}
            if node_id in known and not seen:
                seen = True
                say(seen=True)
            if node_id not in known and seen:
                say(gone_unix=time.time())
                return


def say(**what: object) -> None:
    """A line of JSON."""
    print(json.dumps(what), flush=True)


class Machine:
    """A machine of the network, and its agent."""

    def __init__(self, host: Host, index: int, home: Path, ended: ExitStack) -> None:
        self._host = host
        self._index = index
        self._home = home
        self._ended = ended
        self._heard: list[dict[str, Any]] = []
        self._lines: Iterator[str] = iter(())

    def fleet(self, *words: str) -> str:
        """What `fleet WORDS` prints. Raises `CalledProcessError`."""
        done = self.run(*words)
        done.check_returncode()
        return done.stdout

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`fleet WORDS` there, to its end."""
        return subprocess.run(
            self._host.behind([*FLEET, *words]),
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )

    def join(self, *words: str) -> None:
        """Starts its agent, and waits until it is ready."""
        joining = ["join", *words, "--json", "--name", NAMES[self._index]]
        agent = subprocess.Popen(
            self._host.behind([*FLEET, *joining]),
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if agent.stdout is not None:
            self._ended.callback(agent.stdout.close)
            self._lines = iter(agent.stdout)
        # In turn from the last: it is told to end, and may say so until it has.
        self._ended.callback(agent.wait, 60)
        self._ended.callback(agent.terminate)
        self.ready()

    def ready(self) -> dict[str, Any]:
        """What its agent says when it serves."""
        return next(each for each in self._events() if each["event"] == "ready")

    def knows(self, count: int) -> None:
        """Waits until so many peers have joined."""
        joined = (each for each in self._events() if each["event"] == "peer_joined")
        for _ in range(count):
            next(joined)

    def part(self, name: str, *words: str) -> ChildProcess:
        """A part of this script on this machine."""
        part = ["--part", name, *words]
        return ChildProcess("scripts.eval.four_machines", part, self._host.behind)

    @property
    def _environment(self) -> dict[str, str]:
        """With folders of its own."""
        own = {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
        folders = {name: str(self._home / f"{self._index}-{each}") for name, each in own.items()}
        return {**os.environ, **folders, "KAKEYA_LINKS": "grpc", "OMP_NUM_THREADS": "1"}

    def _events(self) -> Iterator[dict[str, Any]]:
        """What its agent has said, and then what it says. Raises `ChildProcessError` at its end."""
        yield from list(self._heard)
        for line in self._lines:
            self._heard.append(json.loads(line))
            yield self._heard[-1]
        raise ChildProcessError(f"the agent of {NAMES[self._index]} ended: {self._heard[-1:]}")


if __name__ == "__main__":
    main()

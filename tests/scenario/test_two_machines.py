"""Two machines on one network: what one prints works on the other, and each is left from itself.

The machines are two network namespaces of this one, so that neither reaches the other's
loopback.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.network_namespaces import what_is_missing

ROOT = Path(__file__).resolve().parents[2]

MACHINES = """
import asyncio, json, os, shlex, subprocess, sys
from kakeya import AsyncClient
from kakeya_fleet.node.cli.join.advice_text import advice_lines
from scripts.bench.network_namespaces import NEAR, TwoNamespaces

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
home = sys.argv[1]

def environment(machine):
    own = {"XDG_STATE_HOME": f"{home}/{machine}", "KAKEYA_MDNS": "false", "KAKEYA_LINKS": "grpc"}
    return {**os.environ, **own}

def start(words, machine):
    return subprocess.Popen(words, env=environment(machine), stdout=subprocess.PIPE, text=True)

def events(process, name):
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == name:
            return event
    raise SystemExit(f"{name} was never said")

def leave(words, machine):
    done = subprocess.run(words, env=environment(machine), capture_output=True, text=True)
    return {"code": done.returncode, "told": json.loads(done.stdout)}

async def reached(address, name):
    async with AsyncClient(address) as client, asyncio.timeout(60):
        async with client.fleet.watch() as changes:
            async for _ in changes:
                for node in await client.fleet.nodes():
                    if node.name == name and node.round_trip_seconds:
                        return node.address

with TwoNamespaces() as machines:
    join = ["join", "--json", "--name", "near", "--fleet", "two machines", "--insecure"]
    join += ["--bind", f"{NEAR}:0", "--serve", "proposer=ngram"]
    near = start([*FLEET, *join], "near")
    advice = events(near, "advice")
    printed = next(line for line in advice_lines(advice) if line.startswith("  fleet join"))
    # A verifier would take longer to load than everything else here.
    words = [word.replace("verifier=tiny", "archive=1MiB") for word in shlex.split(printed)[1:]]
    far = start(machines.behind([*FLEET, *words, "--json"]), "far")
    events(near, "peer_joined")
    found = asyncio.run(reached(advice["address"], advice["free_name"]))
    ask = ["leave", "--json", "--drain", "0.1"]
    stranger = leave(machines.behind([*FLEET, *ask, "--node", advice["address"]]), "far")
    own = leave([*FLEET, *ask], "near")
    ended = near.wait(30)
    far.terminate()
    far.wait(30)
    print(json.dumps({"found": found, "stranger": stranger, "own": own, "ended": ended}))
"""


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
def test_the_printed_join_works_on_the_other_machine_and_a_node_is_left_from_its_own(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MACHINES, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # The address that it announces is one at which the other machine reaches it.
    assert told["found"].startswith("198.18.0.2:")
    assert told["stranger"]["code"] == 3
    assert told["stranger"]["told"]["error"]["reason"] == "NOT_LOOPBACK"
    assert told["own"]["code"] == 0
    assert told["own"]["told"]["name"] == "near"
    assert told["ended"] == 0

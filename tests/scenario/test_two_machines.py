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
import asyncio, json, shlex, sys
from dataclasses import asdict
from pathlib import Path
from kakeya import AsyncClient
from kakeya_fleet.node.cli.join.advice_text import advice_lines
from scripts.bench.network_namespaces import NEAR
from tests.support.two_machines import TwoMachines

home, warm = map(Path, sys.argv[1:])

async def reached(address, name):
    async with AsyncClient(address) as client, asyncio.timeout(60):
        async with client.fleet.watch() as changes:
            async for _ in changes:
                for node in await client.fleet.nodes():
                    if node.name == name and node.round_trip_seconds:
                        return node.address

with TwoMachines(home, warm, KAKEYA_MDNS="false") as machines:
    words = ["--name", "near", "--fleet", "two machines", "--insecure"]
    near = machines.join("near", *words, "--bind", f"{NEAR}:0", "--serve", "proposer=ngram")
    (advice,) = near.events("advice")
    printed = next(line for line in advice_lines(advice) if line.startswith("  fleet join"))
    # A verifier would take longer to load than everything else here.
    words = [word.replace("verifier=tiny", "archive=1MiB") for word in shlex.split(printed)[2:]]
    far = machines.join("far", *words)
    near.events("peer_joined")
    found = asyncio.run(reached(advice["address"], advice["free_name"]))
    ask = ["leave", "--json", "--drain", "0.1"]
    stranger = machines.fleet("far", *ask, "--node", advice["address"])
    own = machines.fleet("near", *ask)
    ended = near.wait()
    far.end()
    print(json.dumps({
        "found": found, "stranger": asdict(stranger), "own": asdict(own), "ended": ended,
    }))
"""


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
def test_the_printed_join_works_on_the_other_machine_and_a_node_is_left_from_its_own(
    tmp_path: Path, warm: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MACHINES, str(tmp_path), str(warm)],
        cwd=ROOT,
        env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # The address that it announces is one at which the other machine reaches it.
    assert told["found"].startswith("198.18.0.2:")
    assert told["stranger"]["code"] == 3
    assert json.loads(told["stranger"]["out"])["error"]["reason"] == "NOT_LOOPBACK"
    assert told["own"]["code"] == 0
    assert json.loads(told["own"]["out"])["name"] == "near"
    assert told["ended"] == 0

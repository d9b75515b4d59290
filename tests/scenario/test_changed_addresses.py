"""Machines whose addresses change while their agents run: DHCP, a VPN, both at once.

The machines are two network namespaces of this one; `ip` gives and takes their addresses.
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
import json, subprocess, sys, time
from pathlib import Path
from scripts.bench.slow_wire import DEVICE
from tests.support.two_machines import TwoMachines

home, warm = map(Path, sys.argv[1:])
# A look takes a processor longer than what is looked for.
LOOKS_SECONDS = 1.0
machines = TwoMachines(home, warm, KAKEYA_PERIOD_SECONDS="0.3")

def words_on(machine, words):
    return machines.behind(words) if machine == "far" else words

def addresses(machine, *changes):
    for verb, address in changes:
        words = ["ip", "address", verb, f"{address}/24", "dev", DEVICE]
        subprocess.run(words_on(machine, words), check=True)

def settled():
    # Of the wire's own addresses none is left: each machine has what a test gives it.
    subprocess.run(["ip", "address", "flush", "dev", DEVICE], check=True)
    subprocess.run(machines.behind(["ip", "address", "flush", "dev", DEVICE]), check=True)

def seen(status, name):
    if "error" in status:
        # Its agent has not noticed yet that the address of its agent.json is gone.
        assert status["error"]["reason"] == "NODE_UNREACHABLE", status
        return status["error"]["message"]
    (node,) = [node for node in status["nodes"] if node["card"]["name"] == name]
    way = status["ways"].get(node["node_id"], "")
    return node["liveness"], way.rpartition(":")[0]

def reached(machine, name, host):
    # What the machine's own tools say, until they say that the other one answers there.
    while True:
        found = seen(machines.fleet(machine, "status", "--json").json, name)
        if found == ("alive", host):
            return
        print(machine, found, file=sys.stderr)
        time.sleep(LOOKS_SECONDS)

def ends(*agents):
    found = [agent.ended() for agent in agents]
    for agent in agents:
        agent.end()
    return found
"""

ONE_MOVES = """
with machines:
    settled()
    addresses("near", ("add", "198.18.9.1"))
    addresses("far", ("add", "198.18.9.2"))
    serving = ["--insecure", "--bind", "0.0.0.0:0", "--no-mdns"]
    near = machines.join("near", "--name", "near", *serving, "--serve", "proposer=ngram")
    (ready,) = near.events("ready")
    peer = ["--peer", ready["address"], "--serve", "proposer=ngram"]
    far = machines.join("far", "--name", "far", *serving, *peer)
    far.events("ready")
    near.events("peer_joined")
    reached("near", "far", "198.18.9.2")
    # A lease ends, and another address is given.
    addresses("far", ("del", "198.18.9.2"), ("add", "198.18.9.3"))
    reached("near", "far", "198.18.9.3")
    # Far has a VPN on which near is not; then near is on nothing else.
    addresses("far", ("add", "198.18.20.2"))
    reached("far", "near", "198.18.9.1")
    addresses("near", ("del", "198.18.9.1"), ("add", "198.18.20.1"))
    reached("near", "far", "198.18.20.2")
    reached("far", "near", "198.18.20.1")
    print(json.dumps({"ends": ends(near, far)}))
"""

BOTH_MOVE = """
with machines:
    settled()
    addresses("near", ("add", "198.18.9.1"))
    addresses("far", ("add", "198.18.9.2"))
    made = machines.fleet("near", "init", "home", "--name", "near")
    assert made.code == 0, made
    near = machines.join("near", "--name", "near", "--serve", "proposer=ngram")
    near.events("ready")
    code = machines.fleet("near", "invite", "--json").json["long_codes"][0]
    far = machines.join("far", code, "--name", "far", "--serve", "proposer=ngram")
    far.events("ready")
    near.events("peer_joined")
    reached("near", "far", "198.18.9.2")
    # Another router: nobody has an address of before, and nobody knows one of now.
    addresses("far", ("del", "198.18.9.2"), ("add", "198.18.30.2"))
    addresses("near", ("del", "198.18.9.1"), ("add", "198.18.30.1"))
    reached("near", "far", "198.18.30.2")
    reached("far", "near", "198.18.30.1")
    invited = machines.fleet("near", "invite", "--json").json["long_codes"]
    print(json.dumps({"ends": ends(near, far), "invited": invited}))
"""


def run(script: str, home: Path, warm: Path) -> dict[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", MACHINES + script, str(home), str(warm)],
        cwd=ROOT,
        env=os.environ | {"XDG_CONFIG_HOME": str(home), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


needs_namespaces = pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())


@needs_namespaces
def test_a_node_whose_address_changes_is_found_at_the_new_one_and_by_a_vpn(
    tmp_path: Path, warm: Path
) -> None:
    assert run(ONE_MOVES, tmp_path, warm)["ends"] == [None, None]


@needs_namespaces
def test_members_that_both_move_find_each_other_by_multicast_dns(
    tmp_path: Path, warm: Path
) -> None:
    told = run(BOTH_MOVE, tmp_path, warm)
    assert told["ends"] == [None, None]
    assert all(code.startswith("198.18.30.1:") for code in told["invited"])

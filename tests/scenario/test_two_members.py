"""Two machines of a fleet with an authority: one lets the other in by a code, and puts it out.

The machines are two network namespaces of this one: multicast DNS, the code's exchange and all that
follows go over the wire between them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.network_namespaces import what_is_missing

ROOT = Path(__file__).resolve().parents[2]

MACHINES = '''
import json, os, subprocess, sys
from scripts.bench.network_namespaces import NEAR, FAR, TwoNamespaces

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
home = sys.argv[1]

def environment(machine):
    return {**os.environ, "XDG_STATE_HOME": f"{home}/{machine}", "KAKEYA_LINKS": "grpc"}

def start(words, machine):
    return subprocess.Popen(words, env=environment(machine), stdout=subprocess.PIPE, text=True)

def events(process, *names):
    """The first of each name, in whatever order they come."""
    found = {}
    for line in process.stdout:
        event = json.loads(line)
        found.setdefault(event["event"], event)
        if found.keys() >= set(names):
            return [found[name] for name in names]
    raise SystemExit(f"{set(names) - found.keys()} was never said")

def run(words, machine):
    done = subprocess.run(words, env=environment(machine), capture_output=True, text=True)
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}

with TwoNamespaces() as machines:
    def near(*words):
        return run([*FLEET, *words], "near")

    def far(*words):
        return run(machines.behind([*FLEET, *words]), "far")

    made = near("init", "home", "--name", "near")
    serving = ["join", "--json", "--name", "near", "--serve", "verifier=tiny"]
    keeper = start([*FLEET, *serving, "--bind", f"{NEAR}:0"], "near")
    events(keeper, "ready")
    code = json.loads(near("invite", "--json")["out"])["short_code"]
    joining = ["join", code, "--json", "--name", "far", "--serve", "proposer=ngram"]
    other = start(machines.behind([*FLEET, *joining, "--bind", f"{FAR}:0"]), "far")
    let_in, _, _ = events(other, "let_in", "ready", "peer_joined")
    events(keeper, "peer_joined")
    prompt = ["generate", "--verifier", "tiny", "--json", "--max-tokens", "12", "def f(x):"]
    here, there = near(*prompt), far(*prompt)
    put_out = near("revoke", "far", "--json")
    after = far(*prompt)
    again = near(*prompt)
    for process in (keeper, other):
        process.terminate()
        process.wait(30)
    print(json.dumps({
        "made": made, "let_in": let_in, "here": here, "there": there, "put_out": put_out,
        "after": after, "again": again,
    }))
'''


def text_of(done: dict[str, str]) -> str:
    return str(json.loads(done["out"].splitlines()[-1])["text"])


# A dozen starts of programs, one behind the other.
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
def test_a_machine_is_let_in_by_a_short_code_answered_and_put_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MACHINES, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["let_in"]["fleet_name"] == "home"
    assert told["here"]["code"] == told["there"]["code"] == 0, told["there"]
    assert text_of(told["there"]) == text_of(told["here"])
    assert told["put_out"]["code"] == 0
    assert told["after"]["code"] == 3, told["after"]
    assert told["again"]["code"] == 0

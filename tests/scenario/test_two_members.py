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

MACHINES = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from scripts.bench.network_namespaces import NEAR, FAR
from tests.support.two_machines import TwoMachines

home, warm = map(Path, sys.argv[1:])
with TwoMachines(home, warm) as machines:
    made = machines.fleet("near", "init", "home", "--name", "near")
    serving = ["--name", "near", "--serve", "verifier=tiny"]
    keeper = machines.join("near", *serving, "--bind", f"{NEAR}:0")
    keeper.events("ready")
    code = machines.fleet("near", "invite", "--json").json["short_code"]
    joining = [code, "--name", "far", "--serve", "proposer=ngram"]
    other = machines.join("far", *joining, "--bind", f"{FAR}:0")
    let_in, _, _ = other.events("let_in", "ready", "peer_joined")
    keeper.events("peer_joined")
    prompt = ["generate", "--verifier", "tiny", "--json", "--max-tokens", "12", "def f(x):"]
    here, there = machines.fleet("near", *prompt), machines.fleet("far", *prompt)
    put_out = machines.fleet("near", "revoke", "far", "--json")
    after = machines.fleet("far", *prompt)
    again = machines.fleet("near", *prompt)
    for agent in (keeper, other):
        agent.end()
    ran = {"made": made, "here": here, "there": there, "put_out": put_out, "after": after,
        "again": again}
    print(json.dumps({name: asdict(each) for name, each in ran.items()} | {"let_in": let_in}))
"""


def text_of(done: dict[str, str]) -> str:
    return str(json.loads(done["out"].splitlines()[-1])["text"])


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
def test_a_machine_is_let_in_by_a_short_code_answered_and_put_out(
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
    assert told["let_in"]["fleet_name"] == "home"
    assert told["made"]["code"] == 0, told["made"]
    assert told["here"]["code"] == told["there"]["code"] == 0, told["there"]
    assert text_of(told["there"]) == text_of(told["here"])
    assert told["put_out"]["code"] == 0
    assert told["after"]["code"] == 3, told["after"]
    assert told["again"]["code"] == 0

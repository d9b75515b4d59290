"""`fleet doctor` of real agents: a healthy pair, a frozen peer, an address where nobody is."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kakeya_fleet.node.cli.doctor.checks import CHECKS
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.commands import NODE, Terminal
from tests.support.in_process import Finished

Pair = tuple[AgentProcess, AgentProcess]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two proposers of a fleet of their own: one of them is frozen for a while."""
    with LocalFleet("doctor-tests", directory=tmp_path_factory.mktemp("agents")) as local:
        one = local.start("mini-1", serve=["proposer=ngram"], environment=NODE)
        other = local.start("mini-2", peers=[one.address], environment=NODE)
        one.wait_for("peer_joined")
        other.wait_for("peer_joined")
        yield one, other


def doctor(fleet: Terminal, agent: AgentProcess, *words: str) -> Finished:
    """Run on the agent's own machine, as its state directory tells."""
    return fleet.run("doctor", *words, KAKEYA_STATE=str(agent.options.state))


def by_check(told: Any) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for finding in told["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return found


def test_a_healthy_pair_has_no_problem_and_every_check_says_something(
    fleet: Terminal, pair: Pair
) -> None:
    done = doctor(fleet, pair[0], "--json")
    assert (done.code, done.err) == (0, "")
    told = done.json
    assert told["address"] == pair[0].address
    assert told["seconds"] > 0
    found = by_check(told)
    assert list(found) == [name for name, _ in CHECKS]
    assert set(told["findings"][0]) == {"check", "level", "what", "cause", "mend"}
    assert told["counts"]["problem"] == 0
    assert sum(told["counts"].values()) == len(told["findings"])
    well = ("agent", "seeds", "to_peers", "from_peers", "addresses", "path_mtu", "versions")
    for check in well:
        assert [each["level"] for each in found[check]] == ["ok"], found[check]
    assert f"process {pair[0].pid}" in found["agent"][0]["what"]
    assert "mini-2 answers at 1 address" in found["to_peers"][0]["what"]
    assert "mini-2 reaches mini-1" in found["from_peers"][0]["what"]
    assert pair[0].address in found["addresses"][0]["what"]
    assert "OMP_NUM_THREADS" in found["threads"][0]["what"]
    assert str(pair[0].options.state) in found["disk"][0]["what"]
    assert found["open_files"][0]["what"].startswith("mini-1 has ")
    # Both ends have one clock, and what is said of it holds.
    assert "1 peer within" in found["clock"][-1]["what"]


def test_a_frozen_peer_is_a_problem_and_holds_up_no_other_check(
    fleet: Terminal, pair: Pair
) -> None:
    pair[1].signal(signal.SIGSTOP)
    try:
        done = doctor(fleet, pair[0])
    finally:
        pair[1].signal(signal.SIGCONT)
    assert done.code == 1
    lines = done.out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("problem "))
    assert lines[at].split() == ["problem", "to", "peers", "mini-2", "does", "not", "answer"]
    assert f"cause: {pair[1].address}: it takes connections and says nothing" in lines[at + 1]
    assert "mend:  Its process is frozen" in lines[at + 2]
    assert "not run here  from peers     mini-2 could not be asked" in done.out
    assert "ok            addresses " in done.out
    assert lines[-1].startswith("1 problem, ")


def test_an_address_where_nobody_is_leaves_the_checks_of_the_machine(
    fleet: Terminal, free_address: str
) -> None:
    done = fleet.run("doctor", "--node", free_address, "--json")
    assert done.code == 1
    found = by_check(done.json)
    (agent,) = found["agent"]
    assert agent["level"] == "problem"
    assert free_address in agent["what"]
    assert "nothing listens there" in agent["cause"]
    assert agent["mend"]
    for check in ("seeds", "to_peers", "from_peers", "addresses", "path_mtu", "versions", "ring"):
        (finding,) = found[check]
        assert finding["level"] == "not_run"
        assert free_address in finding["cause"]
    for check in ("threads", "memory", "disk", "open_files"):
        assert all(each["level"] != "not_run" for each in found[check])


def test_a_name_that_nobody_has_is_refused_before_anything_is_looked_at(
    fleet: Terminal, pair: Pair
) -> None:
    done = doctor(fleet, pair[0], "--node", "mini-9")
    assert (done.code, done.out) == (3, "")
    assert "'mini-9'; there are: mini-1, mini-2" in done.err


def test_ctrl_c_ends_it_at_once_though_the_node_says_nothing(
    fleet: Terminal, silent_node: socket.socket
) -> None:
    host, port = silent_node.getsockname()
    process = fleet.start("doctor", "--node", f"{host}:{port}")
    connection, _ = silent_node.accept()
    with connection:
        done = process.interrupt()
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err


def test_a_pipe_that_nobody_reads_any_more_ends_it(fleet: Terminal, pair: Pair) -> None:
    process = fleet.start("doctor", KAKEYA_STATE=str(pair[0].options.state))
    process.line()
    process.stdout.close()
    assert process.wait() == 141


def test_names_are_completed(fleet: Terminal, pair: Pair) -> None:
    state = str(pair[0].options.state)
    done = fleet.run("fleet doctor --node ", _FLEET_COMPLETE="bash", KAKEYA_STATE=state)
    assert [line.split("\t")[1] for line in done.out.splitlines()] == ["mini-1", "mini-2"]


def test_a_state_directory_is_known_for_the_check_of_its_disk(tmp_path: Path, pair: Pair) -> None:
    from kakeya_fleet.node.cli.asking.local_agents import local_agents  # noqa: PLC0415

    (agent,) = local_agents(tmp_path, pair[0].options.state)
    assert agent.folder == pair[0].options.state.resolve()

"""`fleet pull`, `fleet rm` and `fleet models --fleet`, of real agents and of a scripted one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya import PulledModel, PullPhase, PullProgress, PullSource
from kakeya.v1 import capability_pb2
from kakeya.v1 import model_service_pb2 as wire
from kakeya_fleet.node.cli.fleet.pull_view import pull_text, pulled_text
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.commands import NODE, Screen, Terminal
from tests.support.own_cache import own_cache
from tests.support.scripted_node import ScriptedNode

MIB = 1 << 20


@pytest.fixture(scope="module")
def agents(
    tmp_path_factory: pytest.TempPathFactory, toy: Path
) -> Iterator[tuple[AgentProcess, AgentProcess]]:
    folder = tmp_path_factory.mktemp("agents")
    with LocalFleet("pull-tests", directory=folder) as local:
        source = local.start("mini-7", serve=[f"verifier={toy}"], environment=NODE)
        cache = {"XDG_CACHE_HOME": own_cache(folder / "cache")}
        target = local.start("mini-8", peers=[source.address], environment=NODE | cache)
        target.wait_for("peer_joined")
        yield source, target


def test_a_model_is_pulled_loaded_shown_and_removed(
    fleet: Terminal, agents: tuple[AgentProcess, AgentProcess]
) -> None:
    source, target = agents
    at = ("--on", target.address)
    done = fleet.run("pull", "toy", "--to", target.address, "--from", "mini-7")
    assert done.code == 0
    assert done.out.startswith("mini-8 has toy on its disk: ")
    assert done.out.endswith(" from mini-7\n")
    assert "\x1b" not in done.err
    again = fleet.run("pull", "toy", "--to", target.address, "--json").json
    assert (again["event"], again["node"], again["was_there"]) == ("pulled", "mini-8", True)
    loaded = fleet.run("load", "toy", *at, "--unload-after", "2h")
    assert loaded.out == "mini-8 serves toy as a verifier: torch, float32\n"
    told = fleet.run("models", "--fleet", "--node", source.address, "--json").json
    assert [(each["name"], len(each["models"])) for each in told["nodes"]] == [
        ("mini-7", 0),
        ("mini-8", 1),
    ]
    (model,) = told["nodes"][1]["models"]
    assert (model["model_id"], model["is_whole"], model["is_served"]) == ("toy", True, True)
    assert model["source_names"] == ["mini-7"]
    table = fleet.run("models", "--fleet", "--node", source.address).out
    assert [line.split()[:2] for line in table.splitlines()[2:]] == [["mini-8", "toy"]]
    refused = fleet.run("rm", "toy", *at, "--json")
    assert (refused.code, refused.json["error"]["reason"]) == (3, "MODEL_IN_USE")
    assert fleet.run("unload", "toy", *at).code == 0
    removed = fleet.run("rm", "toy", *at)
    assert removed.code == 0
    assert removed.out.startswith("mini-8 has toy on its disk no more; it took ")
    absent = fleet.run("rm", "toy", *at)
    assert (absent.code, "no pull brought 'toy'" in absent.err) == (3, True)
    nothing = fleet.run("models", "--fleet", "--node", source.address)
    assert nothing.out.startswith("no node of the fleet has pulled a model")


def test_what_nobody_has_and_who_is_not_there_are_said(
    fleet: Terminal, agents: tuple[AgentProcess, AgentProcess]
) -> None:
    to = ("--to", agents[1].address)
    done = fleet.run("pull", "absent", *to)
    assert (done.code, done.out) == (3, "")
    assert "no other node of the fleet has 'absent'" in done.err
    assert "fleet load" not in done.err
    unknown = fleet.run("pull", "toy", *to, "--from", "nobody", "--json")
    assert (unknown.code, unknown.json["error"]["reason"]) == (3, "NODE_NOT_FOUND")
    assert "mini-7" in unknown.json["error"]["message"]
    has_none = fleet.run("pull", "absent", *to, "--from", "mini-7", "--json").out.splitlines()
    assert json.loads(has_none[-1])["error"]["reason"] == "MODEL_NOT_COPIED"
    assert fleet.run("models", "--node", agents[0].address).code == 2


def test_ctrl_c_ends_the_waiting_and_says_that_the_pull_goes_on(
    fleet: Terminal, threaded_node: ScriptedNode
) -> None:
    threaded_node.pull_events = [
        wire.PullModelResponse(progress=wire.PullProgress(phase=wire.PULL_PHASE_COPYING))
    ]
    threaded_node.pulls_for_ever = True
    waiting = fleet.start("pull", "mistral", "--to", threaded_node.address, "--json")
    assert waiting.event()["phase"] == "copying"
    done = waiting.interrupt()
    assert done.code == 130
    assert "goes on pulling mistral" in done.err


def test_on_a_terminal_one_line_moves_and_who_was_left_stays(
    screen: Screen, threaded_node: ScriptedNode
) -> None:
    copying = wire.PullProgress(
        phase=wire.PULL_PHASE_COPYING,
        transfer=capability_pb2.Transfer(done_bytes=40 * MIB, total_bytes=100 * MIB),
        sources=[
            wire.PullSource(node_id="a", node_name="mini-1"),
            wire.PullSource(node_id="b", node_name="mini-2", fault="it gave\nwrong bytes"),
        ],
    )
    pulled = wire.PulledModel(model_id="mistral", byte_count=100 * MIB, file_count=4)
    threaded_node.pull_events = [
        *[wire.PullModelResponse(progress=copying)] * 2,
        wire.PullModelResponse(pulled=pulled),
    ]
    process = screen("pull", "mistral", "--to", threaded_node.address, columns=70)
    assert process.end(seconds=60) == 0
    first, last = [line for line in process.lines if line]
    assert first.startswith("mini-2 was left: it gave")
    assert "wrong bytes" in first
    assert last == "mini-1 has mistral on its disk: 100 MiB in 4 files"
    assert b"pulling mistral from mini-1: 40.0 MiB of 100 MiB, 40 %\r" in process.raw


def test_a_pull_in_words() -> None:
    sources = (PullSource("a", "mini-1", 60 * MIB, ""), PullSource("b", "mini-3", 0, "it died"))
    assert pull_text(PullProgress(PullPhase.ASKING, None, ()), "m") == "asking who has m"
    assert pull_text(PullProgress(PullPhase.COPYING, None, sources), "m") == (
        "pulling m from mini-1"
    )
    pulled = PulledModel("m", 60 * MIB, 2, "ab", was_there=False, sources=sources)
    assert pulled_text(pulled, "mini-2") == (
        "mini-2 has m on its disk: 60.0 MiB in 2 files, 60.0 MiB from mini-1"
    )
    there = PulledModel("tiny", 0, 0, "", was_there=True, sources=())
    assert pulled_text(there, "mini-2") == "mini-2 has tiny on its disk already"

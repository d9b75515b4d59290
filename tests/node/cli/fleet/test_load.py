"""`fleet load` and `fleet unload` of a real agent that began with nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya import (
    LoadedModel,
    LoadPhase,
    LoadProgress,
    ModelKind,
    ModelOffer,
    Role,
    Transfer,
    TransferKind,
    TransferState,
)
from kakeya.v1 import capability_pb2, model_pb2
from kakeya.v1 import model_service_pb2 as wire
from kakeya_fleet.node.cli.fleet.load_view import load_text, loaded_text
from kakeya_fleet.node.cli.fleet.model_names import name_to_load, name_to_unload
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.commands import NODE, Screen, Terminal
from tests.support.scripted_node import ScriptedNode

MIB = 1 << 20


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    with LocalFleet("load-tests", directory=tmp_path_factory.mktemp("agents")) as local:
        yield local.start("mini-7", environment=NODE)


def served(fleet: Terminal, agent: AgentProcess) -> list[tuple[str, str]]:
    """Role and model, as the fleet is told."""
    told = fleet.run("status", "--json", "--node", agent.address).json
    (node,) = told["nodes"]
    return [(each["role"], each["model_id"]) for each in node["card"]["models"]]


def test_a_folder_is_loaded_by_a_relative_path_said_again_and_unloaded_by_name(
    fleet: Terminal, agent: AgentProcess, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(toy.parent)
    done = fleet.run("load", "./toy", "--on", agent.address)
    assert (done.code, done.out) == (0, "mini-7 serves toy as a verifier: torch, float32\n")
    assert done.err.startswith(("fetching ./toy\n", "reading ./toy\n"))
    assert "\x1b" not in done.err
    assert served(fleet, agent) == [("verifier", "toy")]
    again = fleet.run("load", "toy", "--on", agent.address)
    assert again.out == "mini-7 serves toy as a verifier already: torch, float32\n"
    answer = fleet.run(
        "generate", "--node", agent.address, "--verifier", "toy", "--max-tokens", "4", "text"
    )
    assert answer.code == 0
    unloaded = fleet.run("unload", "toy", "--on", agent.address)
    assert unloaded.code == 0
    assert unloaded.out.startswith("mini-7 serves toy as a verifier no more; ")
    assert served(fleet, agent) == []


def test_a_drafter_is_loaded_as_one_and_all_of_it_is_told_as_json(
    fleet: Terminal, agent: AgentProcess
) -> None:
    at = ("--on", agent.address, "--json")
    done = fleet.run("load", "tiny-dflash", "--as", "proposer", *at)
    *progress, loaded = [json.loads(line) for line in done.out.splitlines()]
    assert {each["event"] for each in progress} == {"progress"}
    assert {each["phase"] for each in progress} <= {"waiting", "fetching", "reading", "checking"}
    assert (loaded["event"], loaded["node"], loaded["was_served"]) == ("loaded", "mini-7", False)
    assert (loaded["offer"]["role"], loaded["offer"]["kind"]) == ("proposer", "dflash")
    unloaded = fleet.run("unload", "tiny-dflash", "--as", "proposer", *at).json
    assert (unloaded["event"], unloaded["role"]) == ("unloaded", "proposer")
    assert unloaded["memory_free_bytes"] > 0


def test_refusals_are_sentences_and_the_node_serves_on(
    fleet: Terminal, agent: AgentProcess
) -> None:
    at = ("--on", agent.address)
    done = fleet.run("load", "./nowhere", *at)
    assert (done.code, done.out) == (3, "")
    assert "no model './nowhere'" in done.err
    # Not what it was.
    assert "fleet load" not in done.err
    refused = fleet.run("unload", "toy", *at, "--json")
    assert (refused.code, refused.json["error"]["reason"]) == (3, "MODEL_NOT_FOUND")
    assert fleet.run("load", "tiny", "--as", "archive", *at).code == 2
    assert fleet.run("load", "tiny", "--weights", "int3", *at).code == 2
    assert served(fleet, agent) == []


def test_ctrl_c_ends_the_waiting_and_says_that_the_load_goes_on(
    fleet: Terminal, threaded_node: ScriptedNode
) -> None:
    threaded_node.load_events = [
        wire.LoadModelResponse(progress=wire.LoadProgress(phase=wire.LOAD_PHASE_READING))
    ]
    threaded_node.loads_for_ever = True
    waiting = fleet.start("load", "smollm2", "--on", threaded_node.address, "--json")
    assert waiting.event()["phase"] == "reading"
    done = waiting.interrupt()
    assert done.code == 130
    assert "goes on loading smollm2" in done.err


def test_on_a_terminal_one_line_moves_and_is_gone_at_the_end(
    screen: Screen, threaded_node: ScriptedNode
) -> None:
    reading = capability_pb2.Transfer(done_bytes=40 * MIB, total_bytes=100 * MIB)
    threaded_node.load_events = [
        wire.LoadModelResponse(progress=wire.LoadProgress(phase=phase, transfer=reading))
        for phase in (wire.LOAD_PHASE_READING, wire.LOAD_PHASE_CHECKING)
    ]
    offer = model_pb2.ModelOffer(model_id="smollm2", role=model_pb2.ROLE_VERIFIER)
    loaded = wire.LoadModelResponse(loaded=wire.LoadedModel(offer=offer))
    threaded_node.load_events.append(loaded)
    process = screen("load", "smollm2", "--on", threaded_node.address, columns=32)
    assert process.end(seconds=60) == 0
    assert [line for line in process.lines if line] == ["mini-1 serves smollm2 as a verif", "ier"]
    # A line that was broken would have stayed.
    assert b"reading smollm2: 40.0 MiB of 10\r" in process.raw
    assert b"checking and measuring smollm2\r" in process.raw


def test_paths_are_absolute_and_names_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiny", "smollm2", "organisation/name", "drafter"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("tiny", "smollm2", "ngram", "other/model", "tiny-dflash@tiny", "./absent"):
        assert name_to_load(name) == name
    assert name_to_load("organisation/name") == str(tmp_path / "organisation" / "name")
    assert name_to_load("~/drafter") == str(tmp_path / "drafter")
    assert name_to_load("drafter@tiny") == f"{tmp_path / 'drafter'}@tiny"
    (tmp_path / "ngram").mkdir()
    assert name_to_load("ngram") == "ngram"
    assert name_to_unload("drafter") == "drafter"
    assert name_to_unload("./drafter") == str(tmp_path / "drafter")


def test_a_load_in_words() -> None:
    transfer = Transfer(
        transfer_id="load-1",
        kind=TransferKind.LOAD,
        model_id="toy",
        state=TransferState.RUNNING,
        done_bytes=40 * MIB,
        total_bytes=100 * MIB,
        bytes_per_second=80e6,
        remaining_seconds=0.8,
        started_at_unix=0.0,
        error="",
    )
    told = load_text(LoadProgress(LoadPhase.READING, transfer), "toy", "mini-1")
    assert told.startswith("reading toy: 40.0 MiB of 100")
    checking = LoadProgress(LoadPhase.CHECKING, transfer)
    assert load_text(checking, "toy", "mini-1") == "checking and measuring toy"
    waiting = LoadProgress(LoadPhase.WAITING, None)
    assert "on mini-1: another model" in load_text(waiting, "toy", "mini-1")
    newer = LoadProgress(LoadPhase.UNKNOWN, None)
    assert load_text(newer, "toy", "mini-1") == "loading toy"
    offer = ModelOffer(
        model_id="ngram",
        role=Role.PROPOSER,
        kind=ModelKind.NGRAM,
        weights_digest="",
        tokenizer_digest="",
        quantization="",
        dtype="",
        vocabulary_size=0,
        context_length=0,
        kv_bytes_per_token=0,
        step_costs=(),
        exact=False,
        kv_fixed_bytes=0,
        backend="",
    )
    assert loaded_text(LoadedModel(offer, was_served=False), "mini-1") == (
        "mini-1 serves ngram as a proposer"
    )

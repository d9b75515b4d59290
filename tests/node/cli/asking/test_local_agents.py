import json
import os
import subprocess
from pathlib import Path

import psutil

from kakeya_fleet.node.cli.asking.local_agents import local_agents


def announce(folder: Path, **facts: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.json").write_text(json.dumps(facts))


def test_agents_are_found_by_name_order(tmp_path: Path) -> None:
    announce(tmp_path / "b", name="mini-2", address="127.0.0.1:2", pid=os.getpid())
    announce(tmp_path / "a", name="mini-1", address="127.0.0.1:1", pid=os.getpid())
    assert [agent.name for agent in local_agents(tmp_path)] == ["mini-1", "mini-2"]


def test_what_a_killed_agent_left_behind_names_no_agent(
    tmp_path: Path,
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    announce(tmp_path / "a", name="mini-1", address="127.0.0.1:1", pid=ended.pid)
    assert local_agents(tmp_path) == []


def test_damaged_files_are_passed_over(tmp_path: Path) -> None:
    announce(tmp_path / "good", name="good", address="127.0.0.1:1", pid=os.getpid())
    for name, text in {"a": "{", "b": "[]", "c": '{"address": 1}', "d": '{"pid": "x"}'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.json").write_text(text)
    assert [agent.name for agent in local_agents(tmp_path)] == ["good"]


def test_a_state_directory_elsewhere_counts_too_and_only_once(tmp_path: Path) -> None:
    announce(tmp_path / "root" / "one", name="one", address="127.0.0.1:1", pid=os.getpid())
    announce(tmp_path / "away", name="away", address="127.0.0.1:2", pid=os.getpid())
    assert [agent.name for agent in local_agents(tmp_path / "root", tmp_path / "away")] == [
        "away",
        "one",
    ]
    assert len(local_agents(tmp_path / "root", tmp_path / "root" / "one")) == 1


def test_a_root_that_does_not_exist_has_no_agents(tmp_path: Path) -> None:
    assert local_agents(tmp_path / "nowhere") == []


def test_an_agent_that_answers_nobody_yet_is_starting(tmp_path: Path) -> None:
    began = psutil.Process().create_time()
    facts = {"state": "starting", "pid": os.getpid(), "started_at_unix": began}
    announce(tmp_path / "a", name="mini-1", address="", **facts)
    (agent,) = local_agents(tmp_path)
    assert (agent.name, agent.is_starting, agent.started_at_unix) == ("mini-1", True, began)


def test_a_process_with_the_number_of_one_that_was_killed_while_it_started_is_no_agent(
    tmp_path: Path,
) -> None:
    began = psutil.Process().create_time() - 3600
    facts = {"state": "starting", "pid": os.getpid(), "started_at_unix": began}
    announce(tmp_path / "a", name="mini-1", address="", **facts)
    assert local_agents(tmp_path) == []

"""`fleet status`, `plan` and `hostfile` of two real agents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kakeya_fleet.fleet.hostfiles.hostfile import GroupBackend, Host, parse_hostfile
from tests.support.commands import Agents, Ask, Terminal


def test_status_shows_both_nodes_aligned_and_marks_the_one_that_was_asked(
    fleet: Terminal, agents: Agents
) -> None:
    done = fleet.run("status", "--node", agents[0].address)
    assert done.code == 0
    assert done.err == ""
    assert len(done.out.splitlines()) == 4, done.out
    title, head, first, second = done.out.splitlines()
    # Both run on this machine: its memory is there once, and so are its cores after a second.
    assert re.fullmatch(
        r'fleet "cli-tests": 2 nodes, 2 alive, \d.* / \d.* GiB in use on 1 machine', title
    )
    assert re.match(r"mini-1 \*  verifier=toy +\d.* GiB +(\d+ %|-) +alive, here ", first)
    assert re.match(
        r"mini-2    proposer=ngram +with mini-1 +- +alive, \d+\.\d s ago +(\d.* (ms|us)|-) ",
        second,
    )
    assert first.index("verifier=toy") == second.index("proposer=ngram") == head.index("serves")
    assert first.endswith(f" {agents[0].address}")
    assert "\x1b" not in done.out


def test_a_node_elsewhere_in_the_fleet_is_asked_by_its_name(
    fleet: Terminal, agents: Agents
) -> None:
    here = {"KAKEYA_STATE": str(agents[0].options.state)}
    assert "mini-2 *" in fleet.run("status", "--node", "mini-2", **here).out
    done = fleet.run("status", "--node", "mini-3", **here)
    assert done.code == 3
    assert "'mini-3'; there are: mini-1, mini-2" in done.err


def test_status_as_json_has_every_fact_of_the_cards(ask: Ask, agents: Agents) -> None:
    told = ask("status", "--json").json
    nodes = {node["node_id"]: node for node in told["nodes"]}
    assert set(nodes) == {agent.node_id for agent in agents}
    (host,) = told["memory"]
    assert {node_id for node_id, _ in host["nodes"]} == set(nodes)
    assert 0 < host["free_bytes"] < host["total_bytes"]
    # None in the first second of a node.
    assert 0 <= (host["cpu_share"] or 0) <= 1
    assert told["seed_faults"] == []
    card = nodes[agents[0].node_id]["card"]
    assert card["models"][0]["model_id"] == "toy"
    assert card["models"][0]["role"] == "verifier"


def test_fit_asks_what_is_free_on_each_machine_of_the_fleet(ask: Ask) -> None:
    """Both nodes live on this one; neither has an archive."""
    told = ask("fit", "tiny", "--fleet", "--window", "64", "--json").json
    (model,) = told["models"]
    (machine,) = model["machines"]
    assert (model["model"], model["fits"]) == ("tiny", True)
    assert [node["name"] for node in machine["nodes"]] == ["mini-1", "mini-2"]
    assert machine["memory"]["memory_bytes"] == machine["memory_free_bytes"] > 0
    restored = [way for way in machine["ways"] if way["strategy"] == "restored"]
    assert {way["fits"] for way in restored} == {"impossible"}
    assert "archives of other machines have no room" in restored[0]["problem"]
    done = ask("fit", "tiny", "tiny", "--fleet", "--memory", "1MiB")
    assert done.code == 1
    both = done.out.splitlines()
    assert both[0] == "tiny:"
    assert both[1].startswith("mini-1, mini-2, 1.00 MiB free, torch: Nothing fits: tiny takes")


def test_limits_show_what_is_taken_of_each_bound_and_why(ask: Ask) -> None:
    done = ask("limits")
    title, head, *rows = done.out.splitlines()
    assert title == "what others may have of mini-1"
    assert head.split() == ["limit", "used", "of", "refused", "why"]
    # The question itself is a call of the control plane.
    assert any(re.match(r"calls\.control +1 +320 +0 +Gossip, probes", row) for row in rows)
    assert any(re.match(r"http\.body_bytes +- +8\.00 MiB +- +Longest", row) for row in rows)
    told = ask("limits", "--json").json
    limits = {each["name"]: each for each in told["limits"]}
    assert told["node"] == "mini-1"
    assert limits["drafts.streams"]["unit"] == "places"
    assert limits["calls.control"]["used"] == 1


def test_codecs_show_what_was_measured_and_forget_it(ask: Ask) -> None:
    done = ask("codecs")
    title, head, *rows = done.out.splitlines()
    assert title == "codecs of packed sessions on mini-1"
    assert head.split() == ["model", "codec", "bits", "positions", "nats", "has", "it", "why"]
    assert [row.split()[1:3] for row in rows] == [
        ["int8", "8.5"],
        ["kvarn4", "4.75"],
        ["kvarn4v3", "4.25"],
        ["kvarn3", "3.75"],
        ["kvarn3v2", "3.25"],
        ["kvarn2", "2.75"],
    ]
    assert re.match(r"toy +kvarn4 +4\.75 +0 +- +high +high: kvarn4 was measured on 0", rows[1])
    told = ask("codecs", "--json").json
    assert told["node"] == "mini-1"
    assert [each["qualities"] for each in told["codecs"]] == [[], ["high"], [], ["economy"], [], []]
    assert ask("codecs", "--reset").out == "mini-1 has forgotten what it measured of 0 codecs\n"
    assert ask("codecs", "--reset", "toy", "--json").json == {
        "node": "mini-1",
        "model": "toy",
        "codec_count": 0,
    }
    refused = ask("codecs", "--reset", "other")
    assert refused.code != 0
    assert "no verifier 'other' is served here; served: toy" in refused.err


def test_a_plan_names_the_pair_its_reasons_and_every_rejection(ask: Ask, agents: Agents) -> None:
    done = ask("plan", "--verifier", "toy")
    assert done.code == 0
    assert f"verifier     toy on mini-1 ({agents[0].address})" in done.out
    assert "\nwhy\n  - " in done.out
    assert re.search(r"predicted +\d.* tok/s", done.out)
    as_json = ask("plan", "--json").json
    assert as_json["verifier"]["node_id"] == agents[0].node_id
    assert as_json["reasons"]
    assert as_json["exact"] is True


def test_a_plan_for_more_context_than_the_model_has_says_so(ask: Ask) -> None:
    done = ask("plan", "--verifier", "toy", "--context", "100000")
    assert done.code == 3
    assert "2048" in done.err
    assert done.err.count("\n") == 1


def test_a_restored_plan_says_that_there_is_no_archive(ask: Ask) -> None:
    done = ask("plan", "--verifier", "toy", "--kv", "restored")
    assert done.code == 0
    assert "  - No live node has an archive for what is evicted" in done.out


def test_links_of_a_node_that_has_none(ask: Ask) -> None:
    done = ask("status", "--links")
    assert (done.code, done.out) == (0, "mini-1: no tensor links\n")
    assert ask("status", "--links", "--json").json == {"node": "mini-1", "tensor_links": []}
    assert ask("status", "--links", "--watch").code == 2


def test_a_hostfile_of_the_fleet_is_one_that_is_read_back(
    ask: Ask, agents: Agents, tmp_path: Path
) -> None:
    words = ["--backend", "gloo", "--nodes", f"mini-2,{agents[0].node_id[:8]}"]
    done = ask("hostfile", *words, "--ranks-per-node", "2", "--env", "A=1")
    assert done.code == 0, done.err
    made = parse_hostfile(done.out)
    assert made.backend is GroupBackend.GLOO
    assert made.hosts == (Host("127.0.0.1", ("127.0.0.1",)),) * 4
    assert made.envs == ("A=1",)
    assert done.err == "ranks 0 to 1 on mini-2, ranks 2 to 3 on mini-1\n"
    path = tmp_path / "hosts.json"
    written = ask("hostfile", *words, "--ranks-per-node", "2", "--env", "A=1", "-o", str(path))
    assert (written.code, written.out, path.read_text()) == (0, "", done.out)
    (one_line,) = ask("hostfile", *words, "--json").lines
    assert parse_hostfile(json.dumps(one_line)).rank_count == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--nodes", "mini-1,mini-9"], 3, "mini-9: no node is called that"),
        (["--nodes", "mini-1", "--backend", "gloo"], 3, "mini-1: one rank is no group"),
        (["--nodes", "mini-1,mini-2", "--backend", "jaccl"], 3, "--rdma mini-1:mini-2=DEVICE"),
        (["--rdma", "mini-1=x"], 2, "is not A:B=DEVICE"),
        (["--nodes", "mini-1,mini-2", "--backend", "gloo", "-o", "/proc/nowhere"], 3, "nowhere"),
    ],
)
def test_a_hostfile_that_cannot_be_is_refused_in_one_sentence(
    ask: Ask, words: list[str], code: int, says: str
) -> None:
    done = ask("hostfile", *words)
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert done.err.count("\n") == 1

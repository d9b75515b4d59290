"""`fleet status --watch` and `fleet top` on real terminals, with real agents."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya import Client, NoPlacement, Session, Speculation
from scripts.support.agent_process import LocalFleet
from tests.support.commands import NODE, Agents, Screen, Terminal
from tests.support.rank_groups import wait_until


@pytest.fixture
def generating(agents: Agents) -> Iterator[Session]:
    """A session on the verifier that generates, block by block drafted, until the test ends."""
    with Client(agents[0].address) as client:
        found: list[Session] = []

        def placed() -> bool:
            """Not while the proposer is held apart: on a busy machine a draft may be late."""
            try:
                found.append(
                    client.create_session(
                        "toy",
                        client_label="long-one",
                        speculation=Speculation("ngram", block_size=4),
                    )
                )
            except NoPlacement as refused:
                if "the circuit breaker is open" not in str(refused):
                    raise
            return bool(found)

        wait_until(placed)
        with found[0] as session:
            session.append([97, 98, 99] * 40)
            blocks = iter(session.generate(1900))
            for _ in range(20):
                next(blocks)
            yield session


def test_a_join_and_a_leave_are_seen_at_once_whatever_the_size(
    screen: Screen, tmp_path: Path
) -> None:
    with LocalFleet("watched", directory=tmp_path / "agents") as local:
        host = local.start("host", serve=["proposer=ngram"], environment=NODE)
        watch = screen("status", "--watch", "--node", host.address, columns=110, lines=20)
        watch.wait_for(r'fleet "watched": 1 node, 1 alive +\(q ends\)')
        guest = local.start("guest", peers=[host.address], environment=NODE)
        host.wait_for("peer_joined", lambda event: event["name"] == "guest")
        watch.wait_for(r"^ *guest +")
        watch.resize(70, 12)
        watch.wait_for(r"^ *guest +")
        assert all(len(line) <= 70 for line in watch.lines)
        guest.signal(signal.SIGTERM)
        host.wait_for("peer_left", lambda event: event["name"] == "guest")
        watch.wait_for(r"left")
        watch.press("q")
        assert watch.end() == 0
    # What the terminal showed before comes back, and the last table stays below it.
    assert b"guest" in watch.raw.split(b"\x1b[?1049l")[-1]


@pytest.mark.parametrize("words", [["status", "--watch"], ["top"]])
def test_ctrl_c_gives_the_terminal_back_and_is_no_error(
    screen: Screen, agents: Agents, words: list[str]
) -> None:
    process = screen(*words, "--node", agents[0].address)
    process.wait_for("mini-2")
    process.interrupt()
    assert process.end() == 0
    assert process.raw.rindex(b"\x1b[?1049l") > process.raw.rindex(b"\x1b[?1049h")
    assert b"Traceback" not in process.raw


def test_without_a_terminal_a_line_comes_for_each_change(fleet: Terminal, agents: Agents) -> None:
    process = fleet.start("status", "--watch", "--node", agents[0].address)
    assert process.line().startswith('fleet "cli-tests"')
    done = process.interrupt()
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out


def test_top_shows_a_session_that_generates_and_its_details(
    screen: Screen, agents: Agents, generating: Session
) -> None:
    top = screen("top", "--node", agents[0].address, columns=80, lines=24)
    top.wait_for(r"^  long-one +toy +mini-1 +ngram")
    top.wait_for(r"^  mini-2 +alive")
    assert all(len(line) <= 80 for line in top.lines)
    assert len(top.lines) == 24
    top.wait_for(r"[■□]\+")
    # What is accepted is green; the first blocks may have none.
    top.wait_for("■")
    assert "\x1b[32m■".encode() in top.raw
    top.press("tab")
    top.wait_for(r"^› long-one")
    top.press("enter")
    top.wait_for(r"^session +" + generating.session_id[:16])
    top.wait_for(r"^accepted +[\d,]+ of [\d,]+ drafted")
    top.resize(120, 40)
    top.wait_for(r"draft \d+ % wire \d+ % verify \d+ %")
    top.press("\x1b")
    top.wait_for(r"^EVENTS")
    top.press("q")
    assert top.end() == 0


def test_a_paused_picture_stays_as_it_was(
    screen: Screen, agents: Agents, generating: Session
) -> None:
    top = screen("top", "--node", agents[0].address)
    top.wait_for("long-one")
    top.press("p")
    top.wait_for("PAUSED")
    top.wait_for_whole()
    before = top.lines
    with Client(agents[0].address) as client:
        session = client.create_session("toy", client_label="late", speculation="off")
        assert top.lines == before
        top.press("p")
        top.wait_for("late")
        session.close()


def test_once_prints_one_frame_and_json_the_same_facts(
    fleet: Terminal, agents: Agents, generating: Session
) -> None:
    done = fleet.run("top", "--once", "--node", agents[0].address, COLUMNS="100", LINES="30")
    assert done.code == 0
    assert "long-one" in done.out
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) <= 29
    facts = fleet.run("top", "--once", "--json", "--node", agents[0].address).json
    assert {node["name"] for node in facts["nodes"]} >= {"mini-1", "mini-2"}
    named = [each for each in facts["sessions"] if each["session"]["client_label"] == "long-one"]
    (session,) = named
    assert session["node_name"] == "mini-1"
    assert session["drafted_count"] > 0
    assert session["blocks"]
    session_id = session["session"]["session_id"]
    details = fleet.run("top", "--once", "--session", session_id[:8], "--node", agents[0].address)
    assert session_id[:16] in details.out
    missing = fleet.run("top", "--once", "--session", "zz", "--node", agents[0].address)
    assert missing.code == 3
    assert "no session zz is open" in missing.err


def test_colours_are_for_terminals_unless_somebody_says_otherwise(
    screen: Screen, fleet: Terminal, agents: Agents
) -> None:
    node = ["--node", agents[0].address]
    assert "\x1b[" in fleet.run("status", *node, FORCE_COLOR="1").out
    plain = screen("top", "--once", *node, TERM="dumb")
    without = screen("status", *node, NO_COLOR="1")
    for process in (plain, without):
        process.wait_for("mini-2")
        assert process.end() == 0
    assert b"\x1b[" not in plain.raw
    assert not re.search(rb"\x1b\[(\d+;)*3[0-7]m", without.raw)


def test_a_node_that_is_lost_ends_the_screen_with_its_reason(
    screen: Screen, fleet: Terminal
) -> None:
    process = fleet.start(
        "join", "--json", "--name", "lone", "--no-mdns", "--serve", "proposer=ngram"
    )
    top = screen("top", "--node", process.event()["address"])
    top.wait_for("lone")
    process.kill()
    assert top.end() == 3
    assert b"no node answers" in top.raw.split(b"\x1b[?1049l")[-1]

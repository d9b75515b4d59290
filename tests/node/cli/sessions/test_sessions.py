"""`fleet sessions`: what is open, and what becomes of what is closed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from kakeya import Client, DropReason, Session, SessionState
from kakeya_fleet.node.cli.sessions.choosing import idle_for, named
from kakeya_fleet.node.cli.sessions.listing import Listed
from kakeya_fleet.node.cli.sessions.table import drafter_text, rows, totals_text
from tests.support import fleet_scene
from tests.support.commands import Agents, Ask, Terminal
from tests.support.scripted_node import ScriptedNode


def listed(session_id: str, **facts: object) -> Listed:
    info = replace(fleet_scene.session("a", label="talk").session, session_id=session_id, **facts)  # type: ignore[arg-type]
    return Listed("mini-1", "127.0.0.1:7600", info)


@pytest.fixture
def opened(agents: Agents) -> Iterator[list[Session]]:
    """Two sessions of three and of five tokens."""
    with Client(agents[0].address) as client:
        sessions = [
            client.create_session("toy", tokens=range(count), client_label=f"label-{count}")
            for count in (3, 5)
        ]
        yield sessions
        for each in sessions:
            each.__exit__(None, None, None)


def test_sessions_are_shown_with_what_they_hold(
    ask: Ask, agents: Agents, opened: list[Session]
) -> None:
    done = ask("sessions")
    assert done.code == 0, done.err
    title, heads, *lines = done.out.splitlines()
    assert title.startswith("2 sessions, 8 tokens, ")
    assert heads.split()[:4] == ["session", "node", "model", "state"]
    cells = [line.split() for line in lines]
    assert [each[0] for each in cells] == [each.session_id[:12] for each in opened]
    assert {tuple(each[1:4]) for each in cells} == {("mini-1", "toy", "idle")}
    assert [each[-1] for each in cells] == ["label-3", "label-5"]
    told = ask("sessions", "--json").json
    assert told["silent"] == []
    assert [
        (each["session_id"], each["node"], each["address"], each["history_length"])
        for each in told["sessions"]
    ] == [
        (session.session_id, "mini-1", agents[0].address, count)
        for session, count in zip(opened, (3, 5), strict=True)
    ]
    assert all(each["kv_bytes"] > 0 and each["idle_seconds"] >= 0 for each in told["sessions"])


def test_of_the_whole_fleet_each_node_is_asked_by_any_of_them(
    fleet: Terminal, agents: Agents, opened: list[Session]
) -> None:
    """The proposer's node has none of its own; asked alone, it says so."""
    alone = fleet.run("sessions", "--node", agents[1].address)
    assert (alone.code, alone.out) == (0, "no session is open\n")
    state = str(agents[1].options.state)
    every = fleet.run("sessions", "--json", KAKEYA_STATE=state).json["sessions"]
    assert [each["session_id"] for each in every] == [each.session_id for each in opened]


def test_sessions_are_closed_by_the_start_of_an_id_and_each_says_what_became_of_it(
    ask: Ask, opened: list[Session]
) -> None:
    first, second = (each.session_id for each in opened)
    done = ask("sessions", "close", first[:16], "nobody")
    assert done.code == 1
    assert done.out.startswith(f"{first[:12]} on mini-1 is closed: toy, 3 tokens, ")
    assert done.err == "nobody: no session is called so; `fleet sessions` lists them\n"
    assert [each["session_id"] for each in ask("sessions", "--json").json["sessions"]] == [second]
    told = ask("sessions", "close", second, first, "--json")
    assert told.code == 1
    assert [(each["session_id"], each["history_length"]) for each in told.json["closed"]] == [
        (second, 5)
    ]
    (failed,) = told.json["failed"]
    assert (failed["session_id"], failed["reason"]) == (first, "SESSION_NOT_FOUND")
    assert ask("sessions").out == "no session is open\n"


def test_the_idle_ones_or_all_are_closed_at_once(ask: Ask, opened: list[Session]) -> None:
    kept = ask("sessions", "close", "--idle", "1h")
    assert (kept.code, kept.out) == (0, "no such session is open\n")
    done = ask("sessions", "close", "--idle", "0s", "--json")
    assert done.code == 0
    assert len(done.json["closed"]) == 2
    assert ask("sessions", "close", "--all", "--json").json == {"closed": [], "failed": []}


@pytest.mark.parametrize("words", [(), ("x", "--all"), ("--all", "--idle", "1h"), ("--idle", "1w")])
def test_exactly_one_choice_is_a_right_one(ask: Ask, words: tuple[str, ...]) -> None:
    assert ask("sessions", "close", *words).code == 2


def test_another_callers_session_stays_open(fleet: Terminal, threaded_node: ScriptedNode) -> None:
    """A node lists everybody's to its owner, and does as if it did not know them when they end."""
    with Client(threaded_node.address) as client:
        client.create_session("tiny", tokens=[1, 2])
    threaded_node.refuse("CloseSession", grpc.StatusCode.NOT_FOUND, reason="SESSION_NOT_FOUND")
    at = ("--node", threaded_node.address)
    done = fleet.run("sessions", *at, "close", "--all")
    assert done.code == 1
    assert " is not closed: it has ended, or is another caller's\n" in done.out


def test_ids_name_one_session_each_by_the_whole_before_the_start() -> None:
    sessions = [listed("ab"), listed("abc"), listed("xyz")]
    found, unmatched = named(sessions, ["ab", "x", "xyz"])
    assert [each.info.session_id for each in found] == ["ab", "xyz"]
    assert unmatched == []
    found, unmatched = named(sessions, ["a", "q"])
    assert found == []
    assert [(each.typed, each.why) for each in unmatched] == [
        ("a", "2 sessions begin so"),
        ("q", "no session is called so"),
    ]


def test_what_runs_is_never_idle() -> None:
    states = {state: listed(state.value, state=state, idle_seconds=60.0) for state in SessionState}
    found = {each.info.state for each in idle_for(list(states.values()), 60.0)}
    assert found == set(SessionState) - {SessionState.APPENDING, SessionState.GENERATING}
    assert idle_for([listed("a", idle_seconds=59.9)], 60.0) == []


def test_rows_tell_who_drafts_and_why_nobody_does() -> None:
    info = listed("a" * 32).info
    assert drafter_text(replace(info, drop_reason=DropReason.DEADLINE)).startswith("nobody: ")
    alone = replace(info, drop_reason=None, plan=replace(info.plan, proposer=None))
    assert drafter_text(alone) == "nobody"
    running = listed("b" * 32, state=SessionState.GENERATING, idle_seconds=5.0)
    assert rows([running])[0][5] == "-"
    assert totals_text([running]).startswith("1 session, ")

"""A fleet that lets in invited machines alone, as people make it: init, invite, join, revoke."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from tests.support.commands import RunningCommand, Terminal

NGRAM = ("--no-mdns", "--serve", "proposer=ngram", "--json", "--bind", "127.0.0.1:0")


def state_of(fleet: Terminal, name: str) -> Path:
    return Path(fleet.environment["XDG_STATE_HOME"]) / "kakeya" / name


def until(process: RunningCommand, name: str) -> dict[str, str]:
    """The next event of that name."""
    while (event := process.event())["event"] != name:
        pass
    found: dict[str, str] = event
    return found


@pytest.fixture
def keeper(fleet: Terminal) -> RunningCommand:
    """The first node of the fleet `home`, once it is ready."""
    made = fleet.run("init", "home", "--name", "mini-1", "--json")
    assert made.code == 0
    process = fleet.start("join", "--name", "mini-1", *NGRAM)
    ready = until(process, "ready")
    assert ready["fleet_name"] == "home"
    assert ready["node_id"] == made.json["node_id"]
    return process


def test_a_machine_is_let_in_by_a_code_kept_and_put_out(
    fleet: Terminal, keeper: RunningCommand
) -> None:
    invited = fleet.run("invite", "--json").json
    assert (invited["valid_seconds"], invited["tries"]) == (600, 3)
    (code,) = invited["long_codes"]
    joining = fleet.start("join", code, "--name", "mini-2", *NGRAM)
    entered = until(joining, "let_in")
    assert entered["fleet_name"] == "home"
    ready = until(joining, "ready")
    assert ready["node_id"] == entered["node_id"]
    met = until(keeper, "peer_joined")
    assert met["node_id"] == entered["node_id"]

    # The same code lets nobody else in.
    again = fleet.run("join", code, "--name", "mini-3", *NGRAM)
    assert (again.code, again.json["error"]["reason"]) in {
        (3, "INVITATION_CLOSED"),
        (3, "NO_INVITATION_FOUND"),
    }
    # A node of the same name, and no member.
    stranger = fleet.start("join", "--name", "mini-4", "--fleet", "home", *NGRAM)
    assert until(stranger, "ready")["fleet_name"] == "home"

    named = ("--node", "mini-1")
    assert fleet.run("keeper", "add", "mini-2", *named).out == "mini-2 is a keeper now\n"
    told = fleet.run("members", "--json", *named).json
    assert {each["name"]: each["is_keeper"] for each in told["members"]} == {
        "mini-1": True,
        "mini-2": True,
    }
    shown = fleet.run("members", *named).out
    assert "members of home" in shown
    assert shown.count("ends in 7.0 days") == 2
    assert "no keeper answers" not in shown

    allowed = fleet.run("allow", "mini-2", "archive", *named)
    assert allowed.out.startswith("mini-2 may serve others in archive; 1 member was told")
    assert "archive" in fleet.run("members", *named).out
    told = fleet.run("members", "--json", *named).json
    assert {each["name"]: each["allowed_roles"] for each in told["members"]} == {
        "mini-1": ["archive", "proposer", "verifier"],
        "mini-2": ["archive"],
    }
    status = fleet.run("status", *named).out
    assert "Keepers do not let mini-2 serve others as proposer" in " ".join(status.split())
    both = fleet.run("allow", "mini-2", "all", "archive", *named)
    assert (both.code, "stand alone" in both.err) == (2, True)
    assert fleet.run("allow", "mini-2", "all", *named).code == 0
    assert "Keepers do not let" not in fleet.run("status", *named).out

    put_out = fleet.run("revoke", "mini-2", *named)
    assert put_out.out.startswith("mini-2 is put out of the fleet")
    told = fleet.run("members", "--json", *named).json
    assert [each["name"] for each in told["members"]] == ["mini-1"]
    assert told["revoked_node_ids"] == [entered["node_id"]]
    gone = fleet.run("revoke", "mini-2", *named, "--json")
    assert (gone.code, gone.json["error"]["reason"]) == (3, "NODE_NOT_FOUND")


def test_with_all_keepers_down_it_is_said_what_ends_when(
    fleet: Terminal, keeper: RunningCommand
) -> None:
    (code,) = fleet.run("invite", "--json").json["long_codes"]
    joining = fleet.start("join", code, "--name", "mini-2", *NGRAM)
    until(joining, "peer_joined")
    keeper.send_signal(signal.SIGTERM)
    until(joining, "peer_left")
    # A node that leaves can be asked until it is gone.
    keeper.wait()
    shown = fleet.run("members").out
    assert "no keeper answers: the fleet runs on" in shown
    assert "mini-2's ends in 7.0 days, before all others" in shown
    told = fleet.run("members", "--json").json
    ends = {each["name"]: each["certificate_ends_unix"] for each in told["members"]}
    assert ends["mini-2"] == told["certificate_ends_unix"]


def test_what_is_made_is_for_its_owner_alone_and_is_made_once(fleet: Terminal) -> None:
    done = fleet.run("init", "home", "--name", "mini-1")
    assert done.code == 0
    assert "home is made, and mini-1 is its first keeper" in done.out
    folder = state_of(fleet, "mini-1") / "trust"
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    again = fleet.run("init", "other", "--name", "mini-1", "--json")
    assert (again.code, again.json["error"]["reason"]) == (3, "ALREADY_A_MEMBER")
    assert "home" in again.json["error"]["message"]
    # Nor is it led into another fleet by a code, or by a name.
    code = "127.0.0.1:1#00000-00000-00000-00000-00000-00000"
    led = fleet.run("join", code, "--name", "mini-1", *NGRAM)
    assert led.code != 0
    named = fleet.run("join", "--name", "mini-1", "--fleet", "other", *NGRAM)
    assert (named.code, named.json["error"]["reason"]) == (2, "BAD_CONFIG")


@pytest.mark.parametrize(
    ("code", "reason"),
    [("12", "JOIN_CODE_MALFORMED"), ("", "JOIN_CODE_MALFORMED"), ("x#y", "JOIN_CODE_MALFORMED")],
)
def test_what_is_no_code_is_told_before_anything_is_sent(
    fleet: Terminal, code: str, reason: str
) -> None:
    done = fleet.run("join", code, "--name", "mini-2", *NGRAM)
    assert (done.code, done.json["error"]["reason"]) == (3, reason)


def test_a_fleet_without_an_authority_says_how_to_make_one(fleet: Terminal) -> None:
    process = fleet.start("join", "--name", "mini-1", *NGRAM)
    until(process, "ready")
    for words in (
        ("invite",),
        ("members",),
        ("revoke", "x"),
        ("keeper", "add", "x"),
        ("key", "create", "x"),
        ("certificate",),
    ):
        done = fleet.run(*words)
        assert done.code == 3
        assert "fleet init" in done.err


def test_a_key_that_others_can_read_is_no_key(fleet: Terminal, keeper: RunningCommand) -> None:
    assert keeper.running
    key = state_of(fleet, "mini-1") / "trust" / "owner.key"
    key.chmod(0o644)
    exposed = fleet.run("invite", "--json")
    assert (exposed.code, exposed.json["error"]["reason"]) == (3, "STATE_EXPOSED")


def test_init_writes_the_configuration_once_and_alone_without_a_name(fleet: Terminal) -> None:
    file = Path(fleet.environment["XDG_CONFIG_HOME"]) / "kakeya" / "config.toml"
    made = fleet.run("init", "home", "--name", "mini-1", "--json").json
    assert (made["config_file"], made["config_is_new"]) == (str(file), True)
    assert "#session_ttl_seconds = 1800.0" in file.read_text()
    # What it says is read by the next command, and never written over.
    file.write_text('name = "mini-7"\n')
    again = fleet.run("init", "away", "--json").json
    assert (again["name"], again["config_is_new"]) == ("mini-7", False)
    alone = fleet.run("init")
    assert (alone.code, alone.out.startswith(f"{file} is there already")) == (0, True)
    assert file.read_text() == 'name = "mini-7"\n'
    assert fleet.run("init", "--name", "mini-1").code == 2
    other = Path(fleet.environment["XDG_CONFIG_HOME"]) / "other.toml"
    told = fleet.run("init", KAKEYA_CONFIG=str(other))
    assert (told.code, told.out) == (0, f"{other} has every key of a node, to be set there\n")
    assert other.exists()

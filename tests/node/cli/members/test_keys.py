"""Keys of applications, as people make, show, use and revoke them."""

from __future__ import annotations

from pathlib import Path

import pytest

import kakeya
from kakeya import Client, Tls
from tests.node.cli.members.test_members import NGRAM, until
from tests.support.commands import RunningCommand, Terminal


@pytest.fixture
def keeper(fleet: Terminal) -> RunningCommand:
    assert fleet.run("init", "home", "--name", "mini-1").code == 0
    return fleet.start("join", "--name", "mini-1", *NGRAM)


def test_a_key_is_shown_once_used_listed_and_revoked(
    fleet: Terminal, keeper: RunningCommand, tmp_path: Path
) -> None:
    address = until(keeper, "ready")["applications_address"]
    assert "no key was ever made" in fleet.run("key", "list").out
    limits = ("--sessions", "2", "--generations", "1", "--tokens-per-minute", "900")
    made = fleet.run("key", "create", "app", *limits, "--expires", "30", "--json").json
    assert made["key"].startswith("kky_")
    assert len(made["key"]) == 47
    printed = fleet.run("key", "create", "grafana", "--scope", "observe")
    assert printed.out.startswith("kky_")
    assert len(printed.out.splitlines()) == 1
    assert "shown this once" in printed.err

    listed = fleet.run("key", "list", "--json")
    assert made["key"] not in listed.out
    first, second = listed.json["keys"]
    assert {key: first[key] for key in first} == {
        key: made[key] for key in made if key not in ("event", "key", "told_count")
    }
    assert (first["scopes"], second["scopes"]) == (["generate"], ["observe"])
    assert first["expires_at_unix"] - first["made_at_unix"] == 30 * 86_400
    table = fleet.run("key", "list").out
    assert "30.0 days" in table
    assert "grafana" in table

    bundle = tmp_path / "fleet.pem"
    bundle.write_text(fleet.run("certificate").out)
    told = fleet.run("certificate", "--json").json
    assert told["pem"] == bundle.read_text()
    tls = Tls(bundle, server_name=told["server_name"])
    with Client(address, api_key=made["key"], tls=tls) as client:
        assert client.fleet.node().card.name == "mini-1"

    (line,) = [
        each
        for each in fleet.run("doctor", "--json").json["findings"]
        if each["check"] == "applications"
    ]
    assert (line["level"], address in line["what"]) == ("ok", True)
    assert f"Applications with a key call {address} (gRPC) or https://" in fleet.run("status").out

    double = fleet.run("key", "create", "app", "--json")
    assert (double.code, double.json["error"]["reason"]) == (3, "KEY_AMBIGUOUS")
    revoked = fleet.run("key", "revoke", "app")
    assert revoked.out.startswith(f"the key app ({made['key_id']}) is revoked")
    with (
        Client(address, api_key=made["key"], tls=tls) as client,
        pytest.raises(kakeya.KeyRevoked),
    ):
        client.fleet.node()
    again = fleet.run("key", "revoke", made["key_id"], "--json")
    assert (again.code, again.json["error"]["reason"]) == (3, "KEY_NOT_FOUND")
    assert [each["name"] for each in fleet.run("key", "list", "--json").json["keys"]] == [
        "grafana",
        "app",
    ]
    # The name is free again.
    assert fleet.run("key", "create", "app").code == 0


def test_values_that_no_key_has_are_refused_before_anything_is_asked(fleet: Terminal) -> None:
    for words in (("--scope", "all"), ("--sessions", "0"), ("--expires", "0")):
        assert fleet.run("key", "create", "app", *words).code == 2

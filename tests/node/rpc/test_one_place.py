"""Channels, servers and listeners are made where it is known whether they are encrypted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PLACES = {
    "insecure_channel": {
        "node/rpc/channels.py",
        # By the code's secret: who joins has no certificate yet.
        "node/joining/join_client.py",
        # To this machine's own port, on loopback.
        "node/cli/doctor/asked_trust.py",
        "node/cli/members/known_keys.py",
        "node/cli/members/owned_node.py",
    },
    "secure_channel": {"node/rpc/channels.py"},
    "add_insecure_port": {"node/rpc/listening.py"},
    "add_secure_port": {"node/rpc/listening.py"},
    "create_server": {
        "node/http/application.py",
        # Sealed or proven by a nonce: see docs/members.md.
        "node/roles/archive/data_server.py",
        "node/roles/groups/rank_process.py",
        "node/roles/groups/running_group.py",
    },
    "start_server": set(),
    "TCPSite": set(),
    "SockSite": set(),
    "SSLContext": {"node/trust/tls.py"},
    "create_default_context": set(),
    "ssl_channel_credentials": {"node/trust/tls.py"},
    "dynamic_ssl_server_credentials": {"node/trust/tls.py"},
    "ssl_server_credentials": set(),
}
"""Where each of these is called, below node/, and nowhere else."""


def calls(text: str) -> Iterator[str]:
    """Names of the functions and methods that a module calls."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    yield name


@pytest.fixture(scope="module")
def callers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in PLACES}
    for path in sorted((ROOT / "node").rglob("*.py")):
        text = path.read_text()
        # Few modules have any of these names, and to parse them all takes seconds.
        named = {name for name in found if name in text}
        for name in named & set(calls(text)) if named else ():
            found[name].add(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize("name", PLACES)
def test_what_opens_a_way_in_or_out_is_called_in_its_place_alone(
    callers: dict[str, set[str]], name: str
) -> None:
    assert callers[name] == PLACES[name]

"""What systemd is told, over a real datagram socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kakeya_fleet.node.app.supervisor import Supervisor
from tests.support.patience import PATIENCE_SECONDS

READY = {"event": "ready", "address": "127.0.0.1:7600"}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE_SECONDS)
        yield listening


def lines(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_start_and_end_are_told_in_systemds_words(manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "OTHER": "x"}
    supervisor = Supervisor.of(environment)
    assert environment == {"OTHER": "x"}
    supervisor.take({"event": "joined", "address": "127.0.0.1:7600"})
    supervisor.take({"event": "peer_joined", "name": "mini-2"})
    supervisor.take(READY)
    supervisor.take({"event": "draining", "drain_seconds": 30.0})
    assert lines(manager) == ["STATUS=loads its models; answers at 127.0.0.1:7600"]
    assert lines(manager) == ["READY=1", "STATUS=ready at 127.0.0.1:7600"]
    assert lines(manager) == [
        "STOPPING=1",
        "STATUS=leaves: running answers get 30 s",
        "EXTEND_TIMEOUT_USEC=45000000",
    ]


def test_why_a_node_ends_is_one_line(manager: socket.socket) -> None:
    Supervisor(manager.getsockname()).failed("the port is taken:\ngive another.")
    assert lines(manager) == ["STATUS=ended: the port is taken: give another."]


def test_an_abstract_socket_is_reached_by_its_sign() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # Linux chooses an abstract name.
        listening.settimeout(PATIENCE_SECONDS)
        Supervisor("@" + listening.getsockname()[1:].decode()).take(READY)
        assert lines(listening)[0] == "READY=1"


def test_a_manager_that_is_gone_costs_a_warning(tmp_path: Path) -> None:
    with capture_logs() as logs:
        Supervisor(str(tmp_path / "gone")).take(READY)
    assert [log["event"] for log in logs if "supervisor" in log["event"]] == ["supervisor_not_told"]


def test_without_a_supervisor_nothing_is_said() -> None:
    with capture_logs() as logs:
        Supervisor.of({}).take(READY)
    assert [log for log in logs if "supervisor" in log["event"]] == []

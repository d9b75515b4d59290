import io
import re

import pytest
from rich.console import Console

from kakeya_fleet.node.cli.join.agent_view import (
    JsonView,
    PlainView,
    TerminalView,
    event_lines,
    transfer_lines,
)
from kakeya_fleet.node.watch.transfers import Transfer, TransferKind, Transfers

READY = {
    "event": "ready",
    "node_id": "a" * 64,
    "name": "mini-1",
    "address": "127.0.0.1:7600",
    "http_address": "127.0.0.1:9100",
    "metrics_address": "127.0.0.1:9100",
    "fleet_name": "home",
    "models": [],
    "mdns": "on",
    "state": "/state",
}
JOINED = {"event": "peer_joined", "node_id": "b" * 64, "name": "mini-2", "address": "10.0.0.2:1"}


def test_the_ready_block_tells_where_the_node_answers_and_what_it_serves() -> None:
    text = "\n".join(event_lines(READY, ["verifier=/models/my model"]))
    assert "mini-1 is ready" in text
    assert "address   127.0.0.1:7600" in text
    assert "serves    verifier=/models/my model" in text
    assert "http://127.0.0.1:9100/v1, /health, /metrics" in text
    assert "by key" not in text
    apart = {"applications_address": "10.0.0.2:7601", "https_address": "10.0.0.2:7602"}
    text = "\n".join(event_lines({**READY, **apart}, []))
    assert "by key    gRPC 10.0.0.2:7601, https://10.0.0.2:7602/v1" in text
    assert "taken" not in text
    text = "\n".join(event_lines({**READY, "taken_ports": [7600]}, []))
    assert "taken     7600: another program has it" in text
    text = "\n".join(event_lines({**READY, "taken_ports": [7600, 7180]}, []))
    assert "taken     7600, 7180: other programs have them" in text


def test_peers_that_cannot_be_joined_are_told_with_their_mend() -> None:
    fault = {"address": "10.0.0.9:1", "message": "Nothing listens.", "mend": "Start it."}
    (line,) = event_lines({"event": "seed_fault", **fault}, [])
    assert line.endswith("  Nothing listens. Start it.")
    (line,) = event_lines({"event": "seed_joined", "address": "10.0.0.9:1"}, [])
    assert line.endswith("  the peer 10.0.0.9:1 is joined now")


def test_a_namesake_is_told_with_another_name() -> None:
    namesake = {"name": "mini-1", "address": "10.0.0.2:1", "free_name": "mini-3"}
    (line,) = event_lines({"event": "same_name", **namesake}, [])
    assert "called mini-1 too, at 10.0.0.2:1" in line
    assert line.endswith("--name mini-3")


def test_peers_are_told_in_words() -> None:
    for event, words in {
        "peer_joined": "joined",
        "peer_suspect": "suspect",
        "peer_dead": "dead",
        "peer_left": "left",
    }.items():
        (line,) = event_lines(JOINED | {"event": event}, [])
        assert re.match(r"\d\d:\d\d:\d\d  mini-2 \(10\.0\.0\.2:1\) ", line)
        assert words in line


def test_a_peer_without_a_card_is_told_by_its_id() -> None:
    (line,) = event_lines({"event": "peer_suspect", "node_id": "b" * 64}, [])
    assert "b" * 12 in line


def test_an_event_that_is_newer_than_this_view_is_told_as_it_is() -> None:
    (line,) = event_lines({"event": "ring_promoted", "peer": "mini-2"}, [])
    assert line.endswith("ring promoted: peer mini-2")


def test_json_begins_with_ready_whatever_loads(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView()
    view.loading(["verifier=tiny"])
    view.take(READY)
    assert capsys.readouterr().out.startswith('{"event": "ready", ')


def test_plain_lines_say_what_loads_once(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    view.loading(["verifier=tiny"])
    assert capsys.readouterr().out == "loading verifier=tiny\n"


def transfers_of_a_node() -> tuple[Transfers, Transfer]:
    """A download of 12 MiB, 3 of which came within a second."""
    now = [0.0]
    transfers = Transfers(clock=lambda: now[0], unix=lambda: 0.0)
    transfer = transfers.begin(TransferKind.DOWNLOAD, "some/model")
    now[0] = 1.0
    transfer.progress(3 * 1024**2, 12 * 1024**2)
    return transfers, transfer


def test_a_terminal_shows_bars_until_all_is_served_and_gives_the_cursor_back() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, highlight=False, width=100)
    transfers, _ = transfers_of_a_node()
    view = TerminalView(console, transfers.statuses)
    view.loading(["verifier=some/model"])
    view.take(JOINED | {"event": "joined", "name": "mini-1", "fleet_name": "home"})
    view.take(READY)
    view.take(JOINED)
    view.close()
    text = screen.getvalue()
    assert "downloading some/model ██████░" in text
    assert "3.00 MiB of 12.0 MiB, 25 %, 3.15 MB/s, 3.00 s left" in text
    assert text.index("mini-1 (10.0.0.2:1) joined the fleet home") < text.index("mini-1 is ready")
    assert "downloading" not in text[text.index("mini-1 is ready") :]
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_transfer_that_ended_has_no_bar() -> None:
    transfers, transfer = transfers_of_a_node()
    assert len(transfer_lines(transfers.statuses(), 80)) == 1
    assert all(len(line) <= 80 for line in transfer_lines(transfers.statuses(), 80))
    transfer.done()
    assert transfer_lines(transfers.statuses(), 80) == []

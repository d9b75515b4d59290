"""The benchmark of links: its ways, what it says of promotion, its picture, and a short run."""

import json
import socket
import threading
from pathlib import Path

from kakeya_fleet.node.links.protocol.contract import RoadKind
from scripts.bench.bare_ring import WHOLE, pieces
from scripts.bench.link_promotion import NOISE, Chosen, conclusions, goal_met
from scripts.bench.links import WAYS, cell, main, repeats_of
from scripts.bench.raw_tcp import HEADER, RawTcp, serve
from scripts.plot.links import amount, draw
from scripts.plot.looks import begin

ROOT = Path(__file__).resolve().parents[2]

SOME = ["raw TCP", "bare ring, pieces", "shared-memory road", "ring road", "link over gRPC"]
"""Each process and connection that the others take, too."""


def test_a_payload_is_cut_into_whole_pieces_and_a_rest() -> None:
    assert list(pieces(10, 4)) == [4, 4, 2]
    assert list(pieces(8, 4)) == [4, 4]
    assert list(pieces(10, WHOLE)) == [10]


def test_small_payloads_are_repeated_more_often_than_large_ones() -> None:
    assert repeats_of(64) == repeats_of(1 << 20) == 20
    assert repeats_of(16 << 20) == 2
    assert repeats_of(64 << 20) == 1


def test_a_transfer_ends_when_the_other_end_has_all_of_it() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    way = RawTcp(*listener.getsockname())
    taken, _ = listener.accept()
    holding = threading.Event()

    def hold() -> None:
        taken.recv(HEADER.size + 3, socket.MSG_WAITALL)
        holding.wait()
        taken.sendall(HEADER.pack(3))
        serve(taken)

    thread = threading.Thread(target=hold)
    thread.start()
    threading.Timer(0.05, holding.set).start()
    assert way.transfer(memoryview(b"abc")) >= 0.04
    # Larger than the kernels' buffers, and than the taker's own before.
    assert way.transfer(memoryview(bytes(9 << 20))) > 0
    assert way.transfer(memoryview(b"x")) > 0
    way.close()
    thread.join()
    listener.close()


def test_a_cell_has_the_rate_of_the_median() -> None:
    found = cell("raw TCP", 10**9, [1.0, 2.0, 50.0])
    assert found["gigabytes_per_second"] == 0.5
    assert found["seconds_p95"] == 50.0


def chosen(
    after: float, kind: RoadKind = RoadKind.LOCAL, *, grpc: float = 1.0, before: float = 2.0
) -> Chosen:
    return Chosen(1 << 20, before, after, grpc, kind, "it is faster")


def test_promotion_is_judged_by_the_median_link() -> None:
    fast = conclusions([chosen(0.5), chosen(0.9), chosen(3.0)])
    assert fast["goal_met"]
    assert fast["after_over_grpc"]["median"] == 0.9
    assert fast["after_over_before"]["median"] == 0.45
    assert fast["most_after_over_grpc"] == 3.0
    assert not conclusions([chosen(0.5), chosen(1.01), chosen(3.0)])["goal_met"]


def test_only_links_that_stay_where_they_were_have_noise() -> None:
    ratio = (1.0 + NOISE) / 2
    assert goal_met([ratio] * 3, [RoadKind.GRPC] * 3)
    assert not goal_met([ratio] * 3, [RoadKind.RING, RoadKind.RING, RoadKind.GRPC])
    assert not goal_met([NOISE + 0.01] * 3, [RoadKind.GRPC] * 3)
    mixed = conclusions([chosen(1.0, RoadKind.GRPC), chosen(0.5)])
    assert mixed["chosen"] == {"grpc": 1, "local": 1}
    assert mixed["after_over_grpc_of_promoted"]["count"] == 1


def test_bytes_are_said_for_people() -> None:
    assert [amount(64), amount(1 << 16), amount(16 << 20)] == ["64 B", "64 KiB", "16 MiB"]


def test_a_short_run_has_every_way_and_is_drawn(tmp_path: Path) -> None:
    target = tmp_path / "links.json"
    main(["--quick", "--ways", *SOME, "--out", str(target)])
    report = json.loads(target.read_text())
    assert set(SOME) < set(WAYS)
    assert report["payloads"]["left_out"] == {}
    cells = report["payloads"]["cells"]
    assert [entry["way"] for entry in cells[::3]] == SOME
    assert all(entry["seconds"]["median"] > 0 for entry in cells)
    for part in report["promotion"].values():
        assert sum(part["chosen"].values()) == 1
        assert part["links"][0]["reason"]
    begin()
    for copy in "ab":
        draw(report, tmp_path / f"{copy}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

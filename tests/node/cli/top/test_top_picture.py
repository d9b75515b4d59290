"""The pictures of `fleet top`, drawn from what watches tell."""

from dataclasses import replace
from itertools import product

import pytest

from kakeya import (
    ArchiveOffer,
    EndedSession,
    EventSeverity,
    FleetSnapshot,
    InvariantCount,
    Liveness,
    NodeChanged,
    NodeRemoved,
    SeedFault,
    SessionOutcome,
    TransferState,
)
from kakeya_fleet.node.cli.top.looks import ascii_only, block_cells, fitted, sparkline, split_bar
from kakeya_fleet.node.cli.top.picture import draw, shared_rows
from kakeya_fleet.node.cli.top.rows import NODE_COLUMNS, SESSION_COLUMNS, widths
from kakeya_fleet.node.cli.top.view import TopView, press
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet
from tests.support.fleet_scene import (
    GIB,
    NGRAM,
    NOW,
    TOY,
    block,
    busy_fleet,
    event,
    node,
    sample,
    session,
    status,
    transfer,
)

MINI_1 = "mini-1" * 4


def text(
    fleet: WatchedFleet, view: TopView | None = None, width: int = 80, height: int = 24
) -> str:
    return "\n".join(line.plain for line in draw(fleet, view or TopView(), width, height))


@pytest.mark.parametrize(
    "view",
    [
        TopView(),
        TopView(pane="sessions", session_id="a" * 8),
        TopView(node_id=MINI_1, is_detailed=True),
        TopView(pane="sessions", session_id="a" * 8, is_detailed=True),
    ],
)
def test_every_line_fills_the_screen_and_none_is_longer(view: TopView) -> None:
    for width, height in ((80, 24), (80, 30), (100, 24), (203, 61)):
        lines = draw(busy_fleet(), view, width, height)
        assert len(lines) == height
        assert {line.cell_len for line in lines} == {width}
        assert not any("\n" in line.plain for line in lines)


def test_all_is_there_at_80_by_24() -> None:
    picture = text(busy_fleet())
    for words in (
        'fleet "home"  3 nodes, 2 alive  64.5 tok/s  2 sessions  K/V 6.00 MiB  acc 3.10',
        "mini-1     alive   64.5 t/s",
        "mini-2     alive   12.5 d/s ·····█  87% █░░",
        "mini-3     dead           -",
        "agent     toy     mini-1  ngram@…  41.0  12.3k 3.10 gen  □□□□+ ■□□□+",
        "download Qwen/Qwen3-0.6B on mini-1 ████░░░░░░░░ 33 %, 12.0 MB/s, 1 min 10 s left",
        "mini-3 is dead: it has not answered for 6 s",
        "→ start it again with `fleet join`",
        "q quit",
    ):
        assert words in picture


def test_how_busy_the_cores_are_is_told_and_what_is_not_known_is_no_0() -> None:
    def row(fleet: WatchedFleet) -> list[str]:
        return next(row for row in text(fleet).splitlines() if "  mini-2" in row).split()

    fleet = busy_fleet()
    told = sample(NOW + 1, 0.0)
    assert "87%" in row(fleet)
    view = TopView(node_id="mini-2" * 4, is_detailed=True)
    assert "87 % busy, 50 % by this node" in text(fleet, view, 100, 30)
    assert "accelerator" not in text(fleet, view, 100, 30)
    fleet.take_node("mini-2" * 4, replace(told, cpu_share=0.0, accelerator_share=0.93))
    assert "0%" in row(fleet)
    assert "accelerator 93 % busy" in text(fleet, view, 100, 30)
    # Of an earlier version; and of a node that tells what is no share.
    fleet.take_node("mini-2" * 4, replace(told, cpu_share=None, process_cpu_share=None))
    assert row(fleet)[5] == "-"
    assert "busy" not in text(fleet, view, 100, 30)
    fleet.take_node("mini-2" * 4, replace(told, cpu_share=1e300))
    assert "100%" in row(fleet)


def test_nodes_can_be_listed_by_how_busy_their_cores_are() -> None:
    fleet = busy_fleet()
    fleet.take_node(MINI_1, replace(sample(NOW + 99, 1.0), cpu_share=0.0))
    fleet.take_node("mini-3" * 4, replace(sample(NOW + 99, 1.0), cpu_share=1.0))
    view = TopView(node_order="cpu")
    rows = text(fleet, view).splitlines()[2:5]
    # What a dead node told is not of now.
    assert [row.split()[0] for row in rows] == ["mini-2", "mini-1", "mini-3"]


def test_a_wide_screen_has_the_transfer_in_bytes() -> None:
    assert "400 MiB of 1.17 GiB, 33 %, 12.0 MB/s, 1 min 10 s left" in text(busy_fleet(), width=120)


def test_details_of_a_node_have_its_links_and_their_reasons() -> None:
    picture = text(busy_fleet(), TopView(node_id=MINI_1, is_detailed=True), 100, 30)
    assert "mini-2 features over ring 940 MB/s, 9.54 MiB; both cards have a ring" in picture
    assert "mini-2 round trip 0.40 ms" in picture
    assert "69.9 t/s" in picture


def test_a_proposer_shows_its_drafts_and_how_many_were_accepted() -> None:
    row = next(row for row in text(busy_fleet(), width=120).splitlines() if "  mini-2" in row)
    assert "12.5 d/s" in row
    assert "52%" in row
    picture = text(busy_fleet(), TopView(node_id="mini-2" * 4, is_detailed=True), 100, 30)
    assert "12.5 blocks/s for sessions anywhere" in picture
    assert "52 % of 320 drafted here" in picture


def test_a_node_of_several_roles_shows_each_where_there_is_room() -> None:
    fleet = busy_fleet()
    archive = ArchiveOffer(GIB, GIB, 7700, "float32")
    both = status("mini-2", NGRAM, TOY)
    assert both.card is not None
    fleet.take_fleet(NodeChanged(replace(both, card=replace(both.card, archive=archive))), 1.0)
    fleet.take_node(
        "mini-2" * 4, replace(sample(NOW, 3.0), drafts_per_second=9, archive_bytes=GIB // 4)
    )
    assert "3.00 t/s, 9.00 d/s, 256 MiB" in text(fleet, width=203)
    assert "3.00 t/s, " not in text(fleet, width=80)
    alone = replace(both, card=replace(both.card, archive=archive, models=()))
    fleet.take_fleet(NodeChanged(alone), 2.0)
    assert "alive    256 MiB" in text(fleet, width=80)
    details = text(fleet, TopView(node_id="mini-2" * 4, is_detailed=True), 100, 30)
    assert "0.25 / 1.00 GiB for verifiers" in details


def test_details_have_a_seed_peer_that_cannot_be_joined_and_what_a_session_forgot() -> None:
    fleet = busy_fleet()
    fault = SeedFault("10.0.0.9:7600", "UNREACHABLE", "Nobody answers there.", "Start it.", 9.0, 3)
    fleet.take_node(MINI_1, replace(node("mini-1", TOY), seed_faults=(fault,)))
    details = text(fleet, TopView(node_id=MINI_1, is_detailed=True), 120, 30)
    assert "cannot join Nobody answers there. Tried 3 times in 9.00 s. Start it." in details
    told = session("a", label="agent")
    counts = (InvariantCount("finite_logits", 40, 0), InvariantCount("contiguous_commit", 2, 0))
    info = replace(told.session, forgotten_token_count=11_317, invariants=counts)
    fleet.take_sessions(MINI_1, replace(told, session=info))
    view = TopView(pane="sessions", session_id="a" * 8, is_detailed=True)
    details = text(fleet, view, 120, 30)
    assert "forgotten   11,317 tokens: it sees them no more" in details
    assert "promises    checked 42 times, none broken" in details


def test_what_is_told_of_a_node_whose_watch_broke_is_no_work_of_now() -> None:
    fleet = busy_fleet()
    fleet.trouble(MINI_1, "NODE_UNREACHABLE")
    assert "3 nodes, 2 alive  0 tok/s" in text(fleet)


def test_a_join_that_two_nodes_tell_is_one_line() -> None:
    fleet = busy_fleet()
    for teller in (MINI_1, "mini-2" * 4):
        told = replace(event(7, "mini-9 joined the fleet."), kind="PEER_JOINED")
        fleet.take_node(teller, replace(told, subject_node_id="mini-9" * 4))
    picture = text(fleet)
    assert picture.count("mini-9 joined") == 1
    assert "2 nodes  mini-9 joined the fleet." in picture


def test_details_of_a_session_have_its_blocks_in_time() -> None:
    view = TopView(pane="sessions", session_id="a" * 8, is_detailed=True)
    picture = text(busy_fleet(), view, 100, 30)
    assert "84 of 160 drafted (52 %), acceptance length 3.10" in picture
    assert "draft 5 % wire 2 % verify 93 %" in picture
    assert "the last 10 of 12 blocks" in picture


def test_a_session_that_ended_while_it_is_looked_at_is_said() -> None:
    fleet = busy_fleet()
    view = TopView(pane="sessions", session_id="a" * 8, is_detailed=True)
    fleet.take_sessions(MINI_1, EndedSession("a" * 8, SessionOutcome.CLOSED))
    assert "the session has ended" in text(fleet, view)


def test_what_watches_tell_is_added() -> None:
    fleet = busy_fleet()
    fleet.take_node(MINI_1, sample(NOW + 99, 7.25))
    fleet.take_sessions(MINI_1, session("c", label="third", blocks=[block(0, 2, 2)]))
    fleet.take_node(MINI_1, event(3, "a link fell", severity=EventSeverity.ERROR))
    fleet.take_node(MINI_1, transfer(TransferState.FAILED, "the disk is full: make room"))
    picture = text(fleet)
    assert "7.25" in picture
    assert "third" in picture
    assert picture.index("a link fell") < picture.index("mini-3 is dead")
    assert "failed: the disk is full" in picture
    fleet.take_node(MINI_1, transfer(TransferState.DONE))
    assert "TRANSFERS" not in text(fleet)


def blocks_of(fleet: WatchedFleet) -> int:
    watched = fleet.session("a" * 8)
    assert watched is not None
    return len(watched.blocks)


def test_blocks_of_a_session_go_on_where_they_were() -> None:
    fleet = busy_fleet()
    known = blocks_of(fleet)
    fleet.take_sessions(MINI_1, session("a", label="agent", blocks=[block(999, 4, 4)]))
    assert blocks_of(fleet) == known + 1


def test_a_node_that_dies_keeps_its_row_and_loses_its_sessions() -> None:
    fleet = busy_fleet()
    fleet.take_fleet(NodeChanged(status("mini-1", liveness=Liveness.DEAD)), 1.0)
    picture = text(fleet)
    assert "mini-1     dead" in picture
    assert "no session is open" in picture
    fleet.take_fleet(NodeRemoved(MINI_1), 2.0)
    assert "mini-1" not in text(fleet).split("EVENTS")[0]


def test_a_watch_that_broke_is_said_in_the_node_s_row() -> None:
    fleet = busy_fleet()
    fleet.trouble(MINI_1, "NODE_UNREACHABLE")
    assert "NODE_UN" in text(fleet)


def test_an_empty_fleet_has_a_picture() -> None:
    fleet = busy_fleet()
    fleet.take_fleet(FleetSnapshot("home", ()), 3.0)
    assert "0 nodes, 0 alive" in text(fleet)


def test_keys_move_sort_and_open() -> None:
    fleet = busy_fleet()
    view = press(TopView(), "down", fleet)
    assert view.node_id == MINI_1
    view = press(view, "down", fleet)
    assert view.node_id == "mini-2" * 4
    assert press(view, "enter", fleet).is_detailed
    view = press(view, "tab", fleet)
    assert (view.pane, view.session_id) == ("sessions", "a" * 8)
    view = press(view, "s", fleet)
    assert view.session_order == "speed"
    assert press(press(view, "p", fleet), "p", fleet) == view
    assert press(view, "p", fleet).is_paused
    assert press(press(view, "enter", fleet), "escape", fleet) == view
    assert press(view, "q", fleet).has_ended
    assert press(view, "x", fleet) == view


def test_the_chosen_row_stays_on_the_screen() -> None:
    fleet = busy_fleet()
    fleet.take_fleet(FleetSnapshot("home", tuple(status(f"n{at:02}") for at in range(50))), 0.0)
    view = TopView()
    for _ in range(45):
        view = press(view, "down", fleet)
    assert "› n44" in text(fleet, view)


def test_rows_are_shared_fairly() -> None:
    assert shared_rows([3, 2, 0, 9], 10) == [3, 2, 0, 5]
    assert shared_rows([50, 50, 0, 50], 10) == [4, 3, 0, 3]
    assert shared_rows([1, 1, 0, 1], 10) == [1, 1, 0, 1]
    assert shared_rows([5, 5], 0) == [0, 0]


def test_columns_fill_the_width() -> None:
    for columns, width in product((NODE_COLUMNS, SESSION_COLUMNS), (80, 97, 120, 200)):
        sizes = widths(columns, width)
        assert sum(sizes) + len(columns) - 1 == width
        assert all(size >= column.least for size, column in zip(sizes, columns, strict=True)), width


def test_cells_of_blocks_are_coloured_by_what_became_of_the_tokens() -> None:
    cells = block_cells([block(0, 4, 1), block(5, 2, 2)], 40)
    assert cells.plain == "■□□□+ ■■+"
    styles = {(cells.plain[span.start], str(span.style)) for span in cells.spans}
    assert styles == {("■", "green"), ("□", "red"), ("+", "blue")}


def test_only_whole_blocks_are_shown_the_latest_right() -> None:
    assert block_cells([block(0, 4, 4), block(5, 1, 0)], 4).plain == "□+"


def test_small_pictures() -> None:
    assert sparkline([0, 5, 10], 4, 10).plain == "·▁▅█"
    assert split_bar([(1.0, "red"), (3.0, "blue")], 8).plain == "████████"
    assert split_bar([(0.0, "red")], 3).plain == "···"
    assert fitted("mini-1-long", 6).plain == "mini-…"
    assert fitted("7", 3, right=True).plain == "  7"


def test_a_terminal_with_few_characters_gets_ascii() -> None:
    for view in (TopView(), TopView(pane="sessions", session_id="a" * 8, is_detailed=True)):
        lines = ascii_only(draw(busy_fleet(), view, 100, 30))
        assert all(line.plain.isascii() for line in lines)

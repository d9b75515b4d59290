"""The benchmark of the loop: its ideal, its replaying proposer, its slower network, and a run."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from kakeya_fleet.engine.speculation.generation_report import BlockTiming
from scripts.bench.delay_relay import DelayRelay
from scripts.bench.intervals import median_interval, summary
from scripts.bench.loop import main
from scripts.bench.loop_efficiency import (
    Delays,
    exposed_seconds,
    hidden_seconds,
    ideal_seconds,
    waits,
)
from scripts.bench.replaying import ReplayingProposer, guesses
from scripts.plot.looks import begin
from scripts.plot.loop import draw

ROOT = Path(__file__).resolve().parents[2]


def block(drafted: int, *, ahead: bool = False, wait: float = 0.0) -> BlockTiming:
    return BlockTiming(0, drafted, 0, 0.0, 0.0, wait, 0.0, drafted_ahead=ahead, start_seconds=0.0)


STEPS = {4: 1.0, 8: 2.0, 16: 4.0}


def test_only_what_no_loop_can_hide_is_ideal_time() -> None:
    delays = Delays(compute=0.5, round_trip=2.0)
    assert exposed_seconds(block(3), 1.0, delays) == 2.5
    assert exposed_seconds(block(3, ahead=True), 1.0, delays) == 1.5
    assert exposed_seconds(block(15, ahead=True), 4.0, delays) == 0.0
    assert exposed_seconds(block(0), 1.0, delays) == 0.0


def test_a_block_takes_the_step_of_the_rows_that_hold_it() -> None:
    blocks = [block(0), block(3), block(4), block(7), block(15, ahead=True)]
    assert hidden_seconds(blocks, STEPS) == 1 + 1 + 2 + 2 + 4
    assert ideal_seconds(blocks, STEPS, Delays(0.0, 5.0)) == 10 + 3 * 5 + 1
    with pytest.raises(StopIteration):
        hidden_seconds([block(16)], STEPS)


def test_waits_are_those_of_drafted_blocks() -> None:
    found = waits([block(0, wait=9.0), block(4, wait=1.0), block(8, ahead=True, wait=3.0)])
    assert found["ahead_share"] == 0.5
    assert found["wait_seconds_p50"] == 2.0
    assert found["drafted_tokens_mean"] == 6.0
    assert waits([block(0)]) == {"ahead_share": 0.0}


def test_guesses_are_right_as_often_as_asked_and_inside_the_vocabulary() -> None:
    stream = [index % 7 for index in range(4000)]
    assert guesses(stream, 1.0, 7, 1) == tuple(stream)
    assert all(
        guess != token for guess, token in zip(guesses(stream, 0.0, 7, 1), stream, strict=True)
    )
    known = guesses(stream, 0.8, 7, 1)
    right = sum(guess == token for guess, token in zip(known, stream, strict=True))
    assert 0.77 < right / len(stream) < 0.83
    assert set(known) <= set(range(7))
    assert known != guesses(stream, 0.8, 7, 2)


def test_a_replay_goes_on_where_the_history_and_the_assumed_tokens_end() -> None:
    naps: list[float] = []
    proposer = ReplayingProposer("r", range(100, 120), 0.25, naps.append)
    state = proposer.open([100, 101])
    assert state.propose((), 3, 0).token_ids == (102, 103, 104)
    state.commit([102, 103])
    draft = state.propose([104, 105], 4, 0)
    assert draft.token_ids == (106, 107, 108, 109)
    assert draft.compute_seconds == 0.25
    assert naps == [0.25, 0.25]
    assert state.length == 4
    assert state.propose([0] * 15, 8, 0).token_ids == (119,)


async def test_the_relay_delays_both_ways_and_keeps_every_byte() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1024):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relay = DelayRelay("127.0.0.1", port, 0.08)
    reader, writer = await asyncio.open_connection("127.0.0.1", await relay.start())
    sent = bytes(range(256)) * 64
    began = time.perf_counter()
    writer.write(sent[:10])
    assert await reader.readexactly(10) == sent[:10]
    assert time.perf_counter() - began >= 0.08
    began, pieces = time.perf_counter(), range(10, len(sent), 100)
    for start in pieces:
        writer.write(sent[start : start + 100])
        await writer.drain()
    assert await reader.readexactly(len(sent) - 10) == sent[10:]
    # Bytes wait beside each other: not a delay for each of the pieces.
    assert time.perf_counter() - began < len(pieces) * 0.08
    writer.close()
    assert await reader.read() == b""
    await relay.close()
    server.close()


async def test_a_closed_relay_cuts_its_connections() -> None:
    ended = asyncio.Event()

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(1))
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    relay = DelayRelay("127.0.0.1", server.sockets[0].getsockname()[1], 0.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", await relay.start())
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    await relay.close()
    async with asyncio.timeout(5):
        assert await reader.read() == b""
        await ended.wait()
    writer.close()
    server.close()


def test_the_interval_holds_the_median_and_narrows_with_more_values() -> None:
    values = [float(value % 11) for value in range(40)]
    low, high = median_interval(values)
    assert low <= 5.0 <= high
    more_low, more_high = median_interval(values * 10)
    assert more_high - more_low < high - low
    assert median_interval([3.0]) == (3.0, 3.0)
    assert summary([1.0, 2.0, 4.0])["median"] == 2.0
    with pytest.raises(ValueError, match="no median"):
        median_interval([])


def test_a_short_run_says_the_same_tokens_everywhere_and_is_drawn(tmp_path: Path) -> None:
    target = tmp_path / "loop.json"
    main(["--quick", "--probabilities", "0.9", "--out", str(target)])
    report = json.loads(target.read_text())
    places = [(cell["place"], cell["added_round_trip_seconds"]) for cell in report["cells"]]
    assert places == [("alone", 0.0), ("in_process", 0.0), ("remote", 0.0), ("remote", 0.002)]
    alone, *drafting = report["cells"]
    assert alone["acceptance_length"] == 1.0
    in_process, *remote = drafting
    assert in_process["acceptance_length"] > 1.5
    # A toy's forward is shorter than any way: the pace may rightly go on alone.
    assert all(cell["acceptance_length"] >= 1.0 for cell in remote)
    assert all(cell["draft_faults"] == 0 for cell in drafting)
    assert all(cell["efficiency"]["median"] > 0.0 for cell in report["cells"])
    slower = drafting[-1]
    assert slower["efficiency"]["median"] > slower["of_hidden"]["median"]
    assert slower["wire_seconds_p50"] >= 0.002
    assert report["tokens_identical"]
    begin()
    for copy in "ab":
        draw(report, tmp_path / f"{copy}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

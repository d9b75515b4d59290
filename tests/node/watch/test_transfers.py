"""Downloads and loads: rates, what remains, and how many are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.event_log import EventKind, EventLog, NodeEvent
from kakeya_fleet.node.watch.latest_rate import LatestRate, remaining_seconds
from kakeya_fleet.node.watch.model_transfer import ModelTransfer
from kakeya_fleet.node.watch.transfers import (
    MOST_TRANSFERS,
    TransferKind,
    Transfers,
    TransferState,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def transfers(clock: Clock) -> Transfers:
    return Transfers(clock, clock)


def test_a_steady_rate_is_found_and_what_remains_follows(
    transfers: Transfers, clock: Clock
) -> None:
    transfer = transfers.begin(TransferKind.DOWNLOAD, "m")
    for second in range(1, 21):
        clock.now = 100.0 + second
        transfer.progress(second * 1000, 100_000)
    status = transfer.status()
    assert status.bytes_per_second == pytest.approx(1000)
    assert status.remaining_seconds == pytest.approx(80)
    assert (status.done_bytes, status.total_bytes) == (20_000, 100_000)
    assert status.started_at_unix == 100.0


def test_the_rate_is_that_of_the_latest_seconds(transfers: Transfers, clock: Clock) -> None:
    transfer = transfers.begin(TransferKind.DOWNLOAD, "m")
    done = 0
    for second in range(1, 31):
        clock.now = 100.0 + second
        done += 10 if second <= 15 else 1000
        transfer.progress(done, 0)
    assert transfer.status().bytes_per_second == pytest.approx(1000)
    # Of nothing that comes nothing remains to be said.
    clock.now += 60
    assert transfer.status().bytes_per_second == 0.0
    assert transfer.status().remaining_seconds == 0.0


def test_ends_are_told(transfers: Transfers) -> None:
    done, failed = (transfers.begin(TransferKind.LOAD, name) for name in "ab")
    done.progress(5, 10)
    done.done()
    failed.failed("no memory: close programs")
    first, second = transfers.statuses()
    assert (first.state, first.done_bytes, first.bytes_per_second) == (TransferState.DONE, 10, 0.0)
    assert (second.state, second.error) == (TransferState.FAILED, "no memory: close programs")


def test_what_runs_is_kept_before_what_ended(transfers: Transfers) -> None:
    running = transfers.begin(TransferKind.LOAD, "kept")
    for number in range(2 * MOST_TRANSFERS):
        transfers.begin(TransferKind.LOAD, str(number)).done()
    statuses = transfers.statuses()
    assert len(statuses) == MOST_TRANSFERS
    assert statuses[0].transfer_id == running.transfer_id
    assert statuses[-1].model_id == str(2 * MOST_TRANSFERS - 1)


def test_chunks_in_a_row_are_told_once(transfers: Transfers, clock: Clock) -> None:
    told: list[str] = []
    transfers.on_change = told.append
    transfer = transfers.begin(TransferKind.LOAD, "m")
    for chunk in range(1000):
        clock.now += 0.001
        transfer.progress(chunk, 1000)
    assert 1 < len(told) < 15
    assert transfer.status().done_bytes == 999


@given(st.lists(st.tuples(st.floats(1e-3, 3.0), st.integers(0, 10**9)), min_size=1, max_size=400))
def test_a_rate_is_never_beyond_the_fastest_step(steps: list[tuple[float, int]]) -> None:
    rate, now, amount, fastest = LatestRate(2.0), 0.0, 0, 0.0
    rate.reached(0, 0.0)
    for seconds, more in steps:
        now, amount = now + seconds, amount + more
        fastest = max(fastest, more / seconds)
        rate.reached(amount, now)
        assert 0.0 <= rate.rate(now) <= fastest * (1 + 1e-6)


def test_nothing_remains_of_what_is_unknown_or_done() -> None:
    assert remaining_seconds(5, 0, 10.0) == 0.0
    assert remaining_seconds(5, 10, 0.0) == 0.0
    assert remaining_seconds(10, 10, 3.0) == 0.0
    assert remaining_seconds(4, 10, 3.0) == 2.0


def test_a_models_way_is_a_download_and_then_a_load() -> None:
    activity = NodeActivity()
    transfer = ModelTransfer("m", activity)
    transfer.downloading(1, 2)
    transfer.reading(0, 0)
    transfer.reading(3, 4)
    transfer.loaded()
    download, load = activity.transfers.statuses()
    assert (download.kind, download.state) == (TransferKind.DOWNLOAD, TransferState.DONE)
    assert (load.kind, load.state, load.total_bytes) == (TransferKind.LOAD, TransferState.DONE, 4)
    assert (download.done_bytes, download.total_bytes) == (2, 2)
    assert [event.kind for event in activity.events.latest] == [EventKind.MODEL_LOADED]


def test_a_failure_is_an_event_and_a_failed_transfer() -> None:
    activity = NodeActivity()
    ModelTransfer("m", activity).failed("no model 'm': give a folder")
    (status,) = activity.transfers.statuses()
    assert (status.state, status.error) == (TransferState.FAILED, "no model 'm': give a folder")
    assert "give a folder" in activity.events.latest[0].message


def test_the_latest_events_are_kept_and_numbered() -> None:
    heard: list[NodeEvent] = []
    log = EventLog(lambda: 7.0)
    log.on_add = heard.append
    for number in range(300):
        log.add(EventKind.PEER_DEAD, f"{number}")
    assert len(log.latest) == 256
    assert [log.latest[0].number, log.latest[-1].number] == [45, 300]
    assert len(heard) == 300
    assert log.latest[-1].mend
    assert log.latest[-1].at_unix == 7.0

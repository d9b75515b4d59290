"""The archive's benchmark: what its counted store counts, its verdicts, and a short run."""

import json
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest

import scripts.bench.archive as bench_archive
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import (
    Evicted,
    EvictedKeysValues,
    EvictedQueries,
    PartialAttention,
)
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, LayerGroup
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from scripts.bench.archive_figures import FAST_SIDE, Turn, Turns, merged, over_full, verdict
from scripts.bench.archive_sides import Memory, Place, Side
from scripts.bench.counted_store import BLOCK, CountedStore
from scripts.plot.archive import draw
from scripts.plot.looks import begin

ROOT = Path(__file__).resolve().parents[2]


class KeptStore:
    """Remembers what is deposited, and answers zeros."""

    spec = RestorerSpec(RestorerKind.ARCHIVE)
    encoder = None
    stored_bytes = 0

    def __init__(self, shape: EvictedShape) -> None:
        self.shape = shape
        self.length = 0
        self.deposits: list[tuple[int, Evicted]] = []

    def deposit(self, first: int, evicted: Evicted) -> None:
        assert first == max(self.length, self.shape.sink)
        self.deposits.append((first, evicted))
        self.length = first + self.shape.check_deposit(evicted)

    def begin(self, queries: EvictedQueries) -> None:
        self.queries = queries.queries

    def finish(self) -> PartialAttention:
        heads, count, head_dim = self.queries.shape
        rows = np.zeros((heads, count, 1), np.float32)
        return PartialAttention(np.zeros((heads, count, head_dim), np.float32), rows, rows)

    def abandon(self) -> None:
        return

    def fork(self, length: int) -> Never:
        raise NotImplementedError

    def release(self) -> None:
        return


@pytest.fixture
def shape() -> EvictedShape:
    group = LayerGroup((0, 1), AttentionLayer(kv_heads=2, groups=3, head_dim=4))
    return EvictedShape((group,), "bfloat16", sink=4, window=8, context_length=4096)


def test_a_filled_store_has_every_position_once_and_finite(shape: EvictedShape) -> None:
    kept = KeptStore(shape)
    store = CountedStore(kept, shape)
    store.prefill(BLOCK + 40, seed=1)
    store.prefill(BLOCK + 50, seed=1)
    assert [first for first, _ in kept.deposits] == [4, 4 + BLOCK, BLOCK + 40]
    assert store.length == BLOCK + 50
    assert store.bytes_crossed == 0
    _, evicted = kept.deposits[0]
    assert isinstance(evicted, EvictedKeysValues)
    numbers = evicted.groups[0]
    values = (numbers.astype(np.uint32) << 16).view(np.float32)
    assert 0.9 < values.std() < 1.1


def test_what_crosses_is_counted_on_the_tensors(shape: EvictedShape) -> None:
    store = CountedStore(KeptStore(shape), shape)
    store.begin(EvictedQueries(0, 100, 1.0, np.ones((6, 3, 4), np.float32)))
    assert store.bytes_crossed == 6 * 3 * 4 * 4
    store.finish()
    assert store.bytes_answered == 6 * 3 * (4 + 2) * 4
    array = np.ones((2, 2, 2, 16, 4), np.uint16)
    deposits = CountedStore(KeptStore(shape), shape)
    deposits.deposit(4, EvictedKeysValues((array,)))
    assert deposits.bytes_asked == array.nbytes


def turns(speed: float, *, payload: int = 800, wire: int | None = None, size: int = 1) -> Turns:
    found = Turns()
    for scale in (1.0, 2.0):
        wires = None if wire is None else wire * 16
        found.add(Turn(size, 16, 16 / (speed * scale), payload * 16, wires))
    return found


def memory(verifier: int = 100, archive: int = 0) -> Memory:
    return Memory(verifier, archive, 0, None)


def context(
    tokens: int,
    *,
    full: float = 10.0,
    fast: float = 8.0,
    kv: int = 100,
    payload: int = 800,
    wire: int = 1000,
) -> dict[str, Any]:
    sides = {
        "full": turns(full).summary(memory(tokens)) if full else {"left_out": "budget"},
        FAST_SIDE: turns(fast, payload=payload, wire=wire).summary(memory(kv, tokens)),
    }
    return {"context_tokens": tokens, "sides": sides}


def test_ratios_are_turn_by_turn() -> None:
    cell = context(8192)
    ratio = over_full(cell, FAST_SIDE, "1")
    assert ratio is not None
    assert ratio["median"] == pytest.approx(0.8)
    assert over_full(cell, FAST_SIDE, "8") is None
    assert over_full(context(8192, full=0), FAST_SIDE, "1") is None


def test_the_verdict_is_met_by_what_the_goals_ask_for() -> None:
    found = verdict([context(2048, fast=4.0), context(8192), context(131072, full=0, fast=0.1)])
    assert found["slope_is_zero"]
    assert found["bytes_are_constant"]
    assert found["remote_over_full_met"]
    assert found["ahead_where_full_does_not_fit"]
    assert found["tokens_per_second_where_full_does_not_fit"] == {"131072": pytest.approx(0.15)}


@pytest.mark.parametrize(
    ("change", "goal"),
    [
        ({"kv": 101}, "slope_is_zero"),
        ({"payload": 801}, "bytes_are_constant"),
        ({"wire": 1100}, "bytes_are_constant"),
        ({"fast": 6.9}, "remote_over_full_met"),
    ],
)
def test_the_verdict_is_missed_by_one_figure(change: dict[str, Any], goal: str) -> None:
    cells = [context(2048), context(8192, **change)]
    assert verdict([context(2048), context(8192)])[goal]
    assert not verdict(cells)[goal]


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    found = verdict([context(2048)])
    assert found["remote_over_full_met"] is None
    assert found["slope_is_zero"] is None
    assert found["bytes_are_constant"] is None
    assert found["ahead_where_full_does_not_fit"] is None


def test_a_context_replaces_its_own_and_no_other() -> None:
    got = merged([context(8192), context(2048)], [context(8192, fast=1.0)])
    assert [cell["context_tokens"] for cell in got] == [2048, 8192]
    ratio = over_full(got[1], FAST_SIDE, "1")
    assert ratio is not None
    assert ratio["median"] == pytest.approx(0.1)


def test_sides_are_named_by_where_the_archive_is() -> None:
    assert [side.name for side in bench_archive.sides_of(())] == [
        Place.NOWHERE,
        Place.HERE,
        Place.LOOPBACK,
    ]
    assert Side(Place.LOOPBACK).place.is_remote
    assert not Side(Place.HERE).place.is_remote


def test_a_short_run_is_measured_judged_and_drawn(tmp_path: Path) -> None:
    target = tmp_path / "archive.json"
    words = ["--quick", "--no-networks", "--contexts", "256", "512", "--out", str(target)]
    bench_archive.main([*words, "--checkpoints", str(tmp_path)])
    report = json.loads(target.read_text())
    assert report["networks_left_out"] == "not asked for"
    assert [cell["context_tokens"] for cell in report["contexts"]] == [256, 512]
    short, cell = report["contexts"]
    assert "blocks" in short["sides"]["full"]
    full, here, loopback = (cell["sides"][side.name] for side in bench_archive.sides_of(()))
    # 512 positions of 256 bytes are more than the budget of the quick run.
    assert full["left_out"] == "budget"
    assert full["fits_budget"] is here["fits_budget"] is False
    for side in (here, loopback):
        assert side["memory"]["verifier_kv_bytes"] < 512 * report["kv_bytes_a_token"] / 2
        assert side["memory"]["archive_kv_bytes"] == 512 * report["kv_bytes_a_token"]
        assert side["blocks"]["8"]["tokens_per_second"]["median"] > 0
    assert loopback["memory"]["archive_resident_bytes"] > 1 << 20
    layers, heads, head_dim = 2, 4, 16
    asked = layers * heads * (head_dim + head_dim + 2) * 4 + report["kv_bytes_a_token"]
    for size in ("1", "8"):
        assert loopback["blocks"][size]["payload_bytes_a_token"] == [asked]
        assert loopback["blocks"][size]["wire_bytes_a_token"] is None
    assert report["verdict"]["slope_is_zero"]
    assert report["verdict"]["bytes_are_constant"]
    begin()
    for copy in "ab":
        draw(report, tmp_path / f"{copy}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()

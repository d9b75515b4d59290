"""The arithmetic of the benchmarks: what is dropped, what is compared, in what order."""

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from scripts.bench.decode import Cell, merged, ratios, read_rates, schedule
from scripts.bench.decode_bandwidth import Bandwidth
from scripts.bench.decode_models import COMMON, SHAPES, head_bytes, kv_geometry, weight_bytes
from scripts.bench.decode_profile import ModuleClock, part_of, split
from scripts.bench.decode_timer import WARM_STEPS, StepTimer
from scripts.bench.generation import comparison
from scripts.bench.machine import decile_ratio, machine, percentile, step_summary, write_report
from scripts.bench.process_memory import allocation_peak
from scripts.bench.session_load import Endurance, Reading
from scripts.bench.sessions import summary, tenths
from scripts.plot.decode import draw as draw_decode
from scripts.plot.generation import draw as draw_generation
from scripts.plot.looks import begin
from scripts.plot.sessions import draw as draw_sessions

ROOT = Path(__file__).resolve().parents[2]

PUBLISHED_PARAMETERS = {
    "Qwen3-0.6B": 596_049_920,
    "Gemma-3-270M": 268_098_176,
    "Llama-3.2-1B": 1_235_814_400,
}


class Clock:
    """Says the next of the given seconds at each call."""

    def __init__(self, *seconds: float) -> None:
        self._seconds = iter(seconds)

    def __call__(self) -> float:
        return next(self._seconds)


def test_a_tenth_is_compared_with_a_tenth() -> None:
    assert decile_ratio([1.0] * 10 + [50.0] * 80 + [3.0] * 10) == 3.0
    assert decile_ratio([2.0, 9.0, 9.0, 5.0]) == 2.5
    with pytest.raises(ValueError, match="empty"):
        decile_ratio([])


def test_percentiles_are_nearest_ranks() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99)) == (51.0, 100.0)
    assert percentile([4.0], 0.99) == 4.0
    figures = step_summary([0.1, 0.3, 0.2])
    assert figures["tokens_per_second_median"] == pytest.approx(5.0)
    assert figures["steps"] == 3


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.json"
    write_report(target, {"machine": machine()})
    with pytest.raises(TypeError):
        write_report(target, {"not": {1, 2}})
    assert json.loads(target.read_text())["machine"]["cores"] >= 1
    assert "torch" in json.loads(target.read_text())["machine"]


def test_the_first_steps_do_not_count() -> None:
    assert WARM_STEPS == 2
    timer = StepTimer(2, limit_seconds=1e9, clock=Clock(0.0, 10.0, 20.0, 21.0, 23.0))
    ticks = [timer.tick() for _ in range(5)]
    assert ticks == [False] * 4 + [True]
    assert timer.seconds == [1.0, 2.0]
    assert timer.most_steps == 5


def test_a_slow_side_is_stopped_after_a_few_counted_steps() -> None:
    ends = Clock(*(100.0 * index for index in range(99)))
    timer = StepTimer(50, limit_seconds=150.0, clock=ends)
    ticks = list(itertools.takewhile(lambda enough: not enough, iter(timer.tick, None)))
    assert len(timer.seconds) == 3
    assert len(ticks) == 5


def test_sides_alternate_at_each_context_or_are_loaded_once_a_round() -> None:
    sides, contexts = ("a", "b", "c"), (1, 2)
    order = list(schedule(sides, contexts, 4, random.Random(1), resident=True))
    assert len(order) == 4 * 3 * 2
    groups = [order[first : first + 3] for first in range(0, len(order), 3)]
    assert [group[0][0] for group in groups] == [1, 2] * 4
    assert all(sorted(side for _, side in group) == list(sides) for group in groups)
    assert len({tuple(side for _, side in group) for group in groups}) > 1
    order = list(schedule(sides, contexts, 4, random.Random(1), resident=False))
    loads = sum(one[1] != other[1] for one, other in itertools.pairwise(order))
    assert loads <= 4 * 3 - 1
    assert sorted(order) == sorted(schedule(sides, contexts, 4, random.Random(2), resident=True))


def test_a_cell_replaces_its_own_and_no_other() -> None:
    def cell(context: int, speed: str) -> dict[str, Any]:
        return {"model": "m", "dtype": "d", "context": context, "speed": speed}

    old = [cell(1, "old"), cell(2, "old")]
    got = merged(old, [cell(2, "new"), cell(3, "new")])
    assert got == [cell(1, "old"), cell(2, "new"), cell(3, "new")]


def test_ratios_are_of_what_was_measured() -> None:
    sides = {
        "torch": {"tokens_per_second_median": 6.0},
        "transformers": {"tokens_per_second_median": 2.0},
    }
    assert ratios(sides) == {"torch_over_transformers": 3.0, "torch_over_fastest_rival": 3.0}
    # A rival counts in its fastest configuration.
    sides["transformers_static"] = {"tokens_per_second_median": 5.0}
    sides["mlx"] = {"tokens_per_second_median": 9.0}
    assert ratios(sides)["torch_over_fastest_rival"] == 1.2
    assert ratios(sides)["torch_over_transformers_static"] == 1.2


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_those_of_the_published_models(name: str) -> None:
    architecture, options = SHAPES[name]
    model_class = getattr(transformers, architecture)
    with torch.device("meta"):
        model = model_class(model_class.config_class(**COMMON | options))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == PUBLISHED_PARAMETERS[name]


def test_the_bound_counts_all_weights_and_the_keys_and_values(
    random_checkpoint: Callable[..., Path],
) -> None:
    folder = random_checkpoint(tie_word_embeddings=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert weight_bytes(folder) == 4 * parameters
    assert head_bytes(folder) == 4 * 96 * 32
    assert kv_geometry(folder, "bfloat16").bytes_per_token == 2 * 2 * 2 * 16 * 2
    cell = Cell("m", "bfloat16", 100, steps={"torch": [0.5] * 20})
    bandwidth = Bandwidth({"sum": [1e6, 2e6], "dot": [1.5e6]})
    figures = cell.summary(folder, bandwidth)
    read = 4 * parameters + 110 * 256
    assert figures["bound_tokens_per_second"] == pytest.approx(2e6 / read)
    share = figures["sides"]["torch"]["share_of_bound"]
    assert share == pytest.approx(2.0 / (2e6 / read))


def test_time_belongs_to_the_innermost_module() -> None:
    clock = ModuleClock()
    for module, now in (("Decoder", 0.0), ("XAttention", 1.0), ("PackedLinear", 2.0)):
        clock.enter(module, now)
    clock.leave(5.0)  # the linear layer: 3
    clock.leave(9.0)  # attention: 8 - 3
    clock.enter("RMSNorm", 9.5)
    clock.leave(10.0)
    clock.leave(11.0)  # the decoder: 11 - 8 - 0.5
    clock.enter("PackedLinear", 11.0)
    clock.leave(13.0)
    expected = {"linears": 3.0, "attention": 5.0, "norms": 0.5, "rest": 2.5, "head": 2.0}
    assert clock.seconds == expected
    assert part_of("Linear", "Qwen3ForCausalLM") == "head"
    assert part_of("Linear", "Qwen3MLP") == "linears"


def test_what_no_module_took_is_the_rest() -> None:
    step = {"linears": 3.0, "head": 1.0, "attention": 2.0, "norms": 0.5, "rest": 0.1}
    parts = split([step] * 3, [10.0, 10.0, 10.0])
    assert parts["step"] == 10.0
    assert parts["rest"] == pytest.approx(3.5)
    rates = read_rates(parts, weights=40, head=10, kv_bytes=6)
    assert rates == {"linears": 10.0, "head": 10.0, "attention": 3.0}


def test_the_allocator_peak_is_the_most_held_at_once() -> None:
    def work() -> torch.Tensor:
        first = torch.ones(1_000_000)
        del first
        second = torch.ones(1_500_000)
        return second + 1

    assert 12_000_000 <= allocation_peak(work) < 12_100_000


def test_the_comparison_says_whether_the_goals_are_met() -> None:
    def side(speed: float, flatness: float) -> dict[str, float]:
        return {"tokens_per_second_median": speed, "last_tenth_over_first": flatness}

    compared = comparison({"kv_cache": side(60.0, 1.02), "no_kv_cache": side(10.0, 2.0)})
    assert compared["cached_over_recomputed"] == 6.0
    assert compared["goal_met"]
    assert compared["cached_is_flat"]
    compared = comparison({"kv_cache": side(40.0, 1.5), "no_kv_cache": side(10.0, 2.0)})
    assert not compared["goal_met"]
    assert not compared["cached_is_flat"]


def endurance() -> Endurance:
    latencies = [0.10 + 0.001 * (turn >= 90) for turn in range(100)]
    readings = [Reading(10 * turn, 4096, 1_000_000 + turn) for turn in range(1, 11)]
    return Endurance(latencies, readings, sessions_opened=1, seconds=10.0)


def test_the_endurance_summary_compares_ends_with_beginnings() -> None:
    figures = summary(endurance(), "sink_window", 1)
    assert figures["last_tenth_over_first"] == pytest.approx(1.01)
    assert figures["latency_is_flat"]
    assert figures["resident_is_flat"]
    assert figures["tokens_per_second"] == pytest.approx(300.0)
    assert [len(part) for part in tenths(range(25))] == [2, 3, 2, 3, 2, 3, 2, 3, 2, 3]


def test_pictures_are_the_same_for_the_same_figures(
    tmp_path: Path, random_checkpoint: Callable[..., Path]
) -> None:
    folder = random_checkpoint()
    sides = {"torch": [0.1] * 4, "transformers": [0.2] * 4}
    cells = [
        Cell("m", dtype, context, steps=sides).summary(folder, Bandwidth({"sum": [1e9]}))
        for dtype in ("float32", "bfloat16")
        for context in (256, 2048)
    ]
    side = {"tokens_per_second_median": 9.0, "step_seconds": [0.1, 0.2]}
    crowd = {"sessions": 4, "tokens_per_second": 100.0}
    reports: tuple[tuple[Callable[[dict[str, Any], Path], None], dict[str, Any]], ...] = (
        (draw_decode, {"cells": cells}),
        (draw_generation, {"prompt_tokens": 3, "sides": {"kv_cache": side, "no_kv_cache": side}}),
        (
            draw_sessions,
            {"runs": [summary(endurance(), "full", 2)], "crowds": {"full": [crowd]}},
        ),
    )
    begin()
    for index, (draw, report) in enumerate(reports):
        for copy in "ab":
            draw(report, tmp_path / f"{index}{copy}.svg")
        first, second = ((tmp_path / f"{index}{copy}.svg").read_bytes() for copy in "ab")
        assert first.startswith(b"<?xml")
        assert first == second

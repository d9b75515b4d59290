"""Codecs are calibrated on what they are not measured on, and both scripts run."""

import json
from pathlib import Path

import numpy as np
import pytest

import scripts.eval.codec_quality as codec_quality
from kakeya_fleet.engine.codecs.calibration import BITS
from kakeya_fleet.engine.codecs.calibration_file import read_calibration
from kakeya_fleet.engine.models.digests import weights_digest
from scripts.bench.machine import ROOT
from scripts.eval.weights_quality import PAGES
from scripts.train.calibrate_codecs import CALIBRATED_ON, LEAST_LINE, calibration_texts, main
from scripts.train.codec_observation import observed
from scripts.train.level_tables import Spread, edges_of, levels_of, normed

SHIPPED = ROOT / "engine" / "shipped" / "tiny"


def test_no_line_that_is_calibrated_on_is_measured_on() -> None:
    assert not set(PAGES) & set(CALIBRATED_ON)
    measured = {line.strip() for page in PAGES for line in (ROOT / page).read_text().splitlines()}
    for text in calibration_texts():
        assert len(text) > 2000
        for line in text.splitlines():
            assert len(line.strip()) < LEAST_LINE or line.strip() not in measured


@pytest.mark.parametrize("count", [4, 8, 16])
def test_levels_are_where_the_weighted_error_is_least(count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = np.clip(rng.standard_normal(200_000) / 3, -1.2, 1.2)
    weights = np.where(numbers > 0, 4.0, 1.0)
    spread = Spread.of(numbers, weights)
    levels = levels_of(spread, count)
    assert (np.diff(levels) > 0).all()
    # More of them where errors weigh more.
    assert (levels > 0).sum() > (levels < 0).sum()

    def error(tried: np.ndarray) -> float:
        held = np.abs(numbers) <= 1
        read = tried[np.searchsorted(edges_of(tried), numbers[held])]
        return float((weights[held] * np.square(numbers[held] - read)).sum())

    assert error(levels) < error(np.linspace(-1, 1, count))
    for index in range(count):
        for step in (-0.02, 0.02):
            moved = levels.copy()
            moved[index] += step
            assert error(levels) < error(np.sort(moved))


def test_normed_levels_keep_mean_and_deviation() -> None:
    numbers = np.random.default_rng(1).standard_normal(100_000) / 4 + 0.1
    spread = Spread.of(numbers, np.ones_like(numbers))
    levels = levels_of(spread, 4)
    read = normed(spread, levels)[np.searchsorted(edges_of(levels), numbers)]
    held = np.abs(numbers) <= 1
    assert abs(read[held].mean() - numbers[held].mean()) < 1e-3
    assert abs(read[held].std() - numbers[held].std()) < 1e-3


def test_gradients_are_those_of_the_numbers_that_are_packed() -> None:
    """A weight is of one number: the square of what the loss changes by."""
    seen = observed(SHIPPED, [list(range(100, 228))])
    assert len(seen.keys) == len(seen.values) == len(seen.key_weights)
    for numbers, weights in zip(
        seen.keys + seen.values, seen.key_weights + seen.value_weights, strict=True
    ):
        assert numbers.shape == weights.shape
        assert numbers.shape[2] == 64
        assert (weights >= 0).all()
        assert weights.any()


@pytest.mark.timeout(300)
def test_a_short_run_of_both(tmp_path: Path) -> None:
    file, report = tmp_path / "calibration.npz", tmp_path / "report.json"
    assert main(["--model", str(SHIPPED), "--tokens", "256", "--out", str(file)]) == 0
    found = read_calibration(file, weights_digest(SHIPPED))
    assert {*found.levels} == set(BITS)
    words = f"--model {SHIPPED} --tokens 256 --needles 0 --calibration {file} --out {report}"
    names = "lossless,kivi2,squat2,kvquant4,kvquant2"
    assert codec_quality.main([*words.split(), "--codecs", names]) == 0
    rows = json.loads(report.read_text())["of_codecs"]
    assert list(rows) == ["none", *names.split(",")]
    assert rows["lossless"]["divergence_nats"] == 0
    assert rows["squat2"]["bits_a_value"] == rows["kivi2"]["bits_a_value"]
    assert rows["kvquant4"]["divergence_nats"] < rows["kvquant2"]["divergence_nats"] < 1

"""Which codec a quality has for a model, by simulated measurements of it."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.fleet.placement.codec_choice import (
    Standing,
    decided,
    first_standing,
    wanted,
)
from kakeya_fleet.fleet.placement.codec_ladder import (
    FIRST,
    LADDER,
    LEAST_SAMPLES,
    NOTHING,
    SETTLED_SAMPLES,
    TOLERANCE_NATS,
    Divergence,
    PackedQuality,
)
from tests.support.breadth import all_wide_but

Draw = Callable[[random.Random, float], float]
"""A sample of a distribution with the given mean."""
DRAWS: Mapping[str, Draw] = {
    "constant": lambda _rng, mean: mean,
    "exponential": lambda rng, mean: rng.expovariate(1 / mean) if mean else 0.0,
    "gamma": lambda rng, mean: rng.gammavariate(4.0, mean / 4.0) if mean else 0.0,
    "lognormal": lambda rng, mean: mean * rng.lognormvariate(-0.5, 1.0),
}
TEXT_POSITIONS = 16
HIGH, ECONOMY = PackedQuality.HIGH, PackedQuality.ECONOMY


def of(mean: float, count: int = LEAST_SAMPLES) -> Divergence:
    """Samples that are all alike."""
    return Divergence(count, mean)


class Model:
    """A model whose codecs move choices by so many nats, measured a text at a time."""

    def __init__(self, means: Mapping[str, float], draw: Draw, rng: random.Random) -> None:
        self._means, self._draw, self._rng = means, draw, rng
        self.measured: dict[str, Divergence] = {}

    def settle(self, quality: PackedQuality) -> list[Standing]:
        """The standings that the quality had, until nothing is to be measured."""
        standings = [first_standing(quality)]
        for _ in range(4 * len(LADDER) * SETTLED_SAMPLES):
            codecs = wanted(standings[-1], self.measured)
            if not codecs:
                return standings
            samples = [self._draw(self._rng, self._means[codecs[0]]) for _ in range(TEXT_POSITIONS)]
            before = self.measured.get(codecs[0], NOTHING)
            self.measured[codecs[0]] = before.with_samples(samples)
            decision = decided(quality, standings[-1], self.measured)
            assert decision.reasons
            assert decision.moved is (decision.standing != standings[-1])
            if decision.moved:
                standings.append(decision.standing)
        raise AssertionError("it is never settled")


def means_of(quality: PackedQuality, factor: float, *, first: float) -> dict[str, float]:
    """That in use moves choices by `first` times the tolerance, each lower one `factor` more."""
    at = LADDER.index(FIRST[quality])
    tolerance = TOLERANCE_NATS[quality]
    return {codec: tolerance * first * factor ** (i - at) for i, codec in enumerate(LADDER)}


@pytest.mark.parametrize("seed", all_wide_but({0, 1}, range(8)))
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("quality", PackedQuality)
@pytest.mark.parametrize(
    ("first", "factor", "steps"), [(0.3, 5.0, 0), (5.0, 20.0, -1), (0.02, 10.0, 1)]
)
def test_the_right_codec_is_found_within_a_hundred_samples_of_each(
    quality: PackedQuality, name: str, seed: int, first: float, factor: float, steps: int
) -> None:
    model = Model(means_of(quality, factor, first=first), DRAWS[name], random.Random(seed))
    standings = model.settle(quality)
    expected = LADDER[LADDER.index(FIRST[quality]) + steps]
    assert standings[-1].codec == expected
    assert all(each.count <= 100 for each in model.measured.values())


@given(
    # What is nearer to zero has no quarter, which a distribution needs.
    means=st.lists(st.just(0.0) | st.floats(1e-9, 1.0), min_size=len(LADDER), max_size=len(LADDER)),
    name=st.sampled_from(sorted(DRAWS)),
    quality=st.sampled_from(list(PackedQuality)),
    seed=st.integers(0, 1 << 30),
)
def test_it_stays_on_the_ladder_and_never_flaps(
    means: list[float], name: str, quality: PackedQuality, seed: int
) -> None:
    model = Model(dict(zip(LADDER, means, strict=True)), DRAWS[name], random.Random(seed))
    standings = model.settle(quality)
    places = [LADDER.index(each.codec) for each in standings]
    steps = [after - before for before, after in itertools.pairwise(places)]
    assert all(abs(step) == 1 for step in steps)
    # All up, or all down.
    assert len(set(steps)) <= 1
    assert len(steps) < len(LADDER)
    # What is settled changes nothing, however often it is asked.
    assert not decided(quality, standings[-1], model.measured).moved


@given(
    measured=st.dictionaries(
        st.sampled_from(LADDER),
        st.builds(
            Divergence, st.integers(0, LEAST_SAMPLES - 1), st.floats(0.0, 50.0), st.floats(0.0, 9.0)
        ),
    ),
    quality=st.sampled_from(list(PackedQuality)),
)
def test_few_samples_decide_nothing(
    measured: dict[str, Divergence], quality: PackedQuality
) -> None:
    assert not decided(quality, first_standing(quality), measured).moved


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, Standing("kvarn4")),
        ({"kvarn4": of(0.0049)}, Standing("kvarn4")),
        ({"kvarn4": of(0.0051)}, Standing("int8", is_raised=True)),
        # Its error reaches below the tolerance: it may be within.
        ({"kvarn4": Divergence(16, 0.0051, 0.01)}, Standing("kvarn4")),
        ({"kvarn4": of(0.001), "kvarn4v3": of(0.0024, 96)}, Standing("kvarn4v3")),
        ({"kvarn4": of(0.001), "kvarn4v3": of(0.0026, 96)}, Standing("kvarn4")),
        # Other texts may say something else.
        ({"kvarn4": of(0.001), "kvarn4v3": of(0.0, 95)}, Standing("kvarn4")),
        # Its error reaches above half: it may not do.
        ({"kvarn4": of(0.001), "kvarn4v3": Divergence(96, 0.0024, 0.01)}, Standing("kvarn4")),
        # Nothing is taken that was not measured, however good what is above it.
        ({"kvarn4": of(0.0)}, Standing("kvarn4")),
    ],
)
def test_bounds_of_a_step(measured: dict[str, Divergence], expected: Standing) -> None:
    assert decided(HIGH, Standing("kvarn4"), measured).standing == expected


def test_the_ends_of_the_ladder_hold() -> None:
    top = decided(HIGH, Standing("int8"), {"int8": of(3.0)})
    assert top.standing == Standing("int8")
    assert "--kv-quality lossless" in " ".join(top.reasons)
    bottom = decided(ECONOMY, Standing("kvarn2"), {"kvarn2": of(0.0)})
    assert bottom.standing == Standing("kvarn2")
    assert not bottom.moved


def test_one_that_got_more_bits_gets_fewer_no_more() -> None:
    raised = Standing("int8", is_raised=True)
    measured = {"int8": of(0.0, 96), "kvarn4": of(0.0, 96)}
    assert decided(HIGH, raised, measured).standing == raised
    assert wanted(raised, {}) == ("int8",)


def test_those_with_the_fewest_samples_are_measured_first() -> None:
    standing = first_standing(HIGH)
    assert wanted(standing, {}) == ("kvarn4", "kvarn4v3")
    assert wanted(standing, {"kvarn4": of(0.001)}) == ("kvarn4v3", "kvarn4")
    settled = of(0.001, SETTLED_SAMPLES)
    assert wanted(standing, {"kvarn4": settled}) == ("kvarn4v3",)
    assert wanted(standing, {"kvarn4": settled, "kvarn4v3": settled}) == ()


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=140))
def test_samples_are_those_of_statistics(samples: list[float]) -> None:
    found = NOTHING.with_samples(samples[:5]).with_samples(samples[5:])
    kept = samples[:SETTLED_SAMPLES]
    assert found.count == len(kept)
    assert found.mean == pytest.approx(statistics.fmean(kept), abs=1e-9)
    variance = statistics.variance(kept)
    assert found.squares / (found.count - 1) == pytest.approx(variance, rel=1e-6, abs=1e-6)
    assert 0.0 <= found.least <= found.mean + 1e-9 <= found.most + 1e-9


def test_the_reasons_are_sentences_with_the_numbers() -> None:
    moved = decided(HIGH, Standing("kvarn4"), {"kvarn4": of(0.0064, 96)})
    assert moved.reasons == (
        "kvarn4 was measured on 96 positions: 0.0064 nats, 0.0064 at most.",
        "That is above 0.005 for certain: more bits are taken.",
    )
    kept = decided(HIGH, Standing("kvarn4"), {"kvarn4": of(0.0021, 96), "kvarn4v3": of(0.006, 96)})
    assert kept.reasons == (
        "kvarn4 was measured on 96 positions: 0.0021 nats, 0.0021 at most. That is within the"
        " 0.005 that high bears.",
        "kvarn4v3 was measured on 96 positions: 0.0060 nats, 0.0060 at most. To take it, 0.0025 at"
        " most is needed on 96 positions.",
    )
    new = decided(ECONOMY, first_standing(ECONOMY), {})
    assert new.reasons == (
        "kvarn3 was measured on 0 positions of this model; from 16 on it is judged by them.",
    )

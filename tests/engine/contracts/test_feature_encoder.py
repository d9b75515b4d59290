"""The context encoder: its formula, and rows that do not know each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights

TAPS, HIDDEN, WIDTH = (0, 2, 3), 24, 40


@pytest.fixture(scope="module")
def weights() -> EncoderWeights:
    random = np.random.default_rng(1)
    fc = random.standard_normal((WIDTH, len(TAPS) * HIDDEN)).astype(np.float32)
    norm = (1.0 + 0.1 * random.standard_normal(WIDTH)).astype(np.float32)
    return EncoderWeights(fc, norm, 1e-6, TAPS)


def states(count, seed: int = 2):
    shape = (count, len(TAPS), HIDDEN)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_it_is_a_norm_of_a_linear_map_of_the_concatenated_taps(weights: EncoderWeights) -> None:
    features = states(5)
    wide = np.concatenate([features[:, tap] for tap in range(len(TAPS))], axis=1)
    mapped = wide.astype(np.float64) @ weights.fc.astype(np.float64).T
    scale = 1.0 / np.sqrt((mapped**2).mean(axis=1, keepdims=True) + weights.eps)
    encoded = ContextEncoder(weights).encode(features)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, mapped * scale * weights.norm, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 16, 31])
def test_a_row_does_not_depend_on_its_neighbours(weights: EncoderWeights, count: int) -> None:
    encoder, features = ContextEncoder(weights), states(64)
    whole = encoder.encode(features)
    for first in (0, 1, 5, 33):
        part = encoder.encode(features[first : first + count])
        assert part.shape == (count, WIDTH)
        assert np.array_equal(part, whole[first : first + count])


def test_what_decides_the_vectors_decides_the_digest(weights: EncoderWeights) -> None:
    digests = {weights.digest}
    changed = weights.fc.copy()
    changed[3, 5] += np.float32(1e-6)
    for other in (
        replace(weights, fc=changed),
        replace(weights, norm=weights.norm * np.float32(2)),
        replace(weights, eps=1e-5),
        replace(weights, taps=(0, 1, 3)),
    ):
        digests.add(other.digest)
    assert len(digests) == 5
    assert replace(weights, fc=np.asfortranarray(weights.fc)).digest == weights.digest
    assert ContextEncoder(weights).spec.digest == weights.digest


def test_weights_and_states_that_fit_nothing_are_refused(weights: EncoderWeights) -> None:
    encoder = ContextEncoder(weights)
    for shape in ((4, HIDDEN), (4, 2, HIDDEN), (4, len(TAPS), HIDDEN - 1)):
        with pytest.raises(ValueError, match="are not"):
            encoder.encode(np.zeros(shape, np.float32))
    broken = weights.fc.copy()
    broken[0, 0] = np.nan
    for fields in (
        {"taps": ()},
        {"taps": (0, 1, 2, 3, 4)},
        {"norm": weights.norm[1:]},
        {"fc": broken},
        {"fc": weights.fc.astype(np.float64)},
        {"eps": -1.0},
        {"eps": float("nan")},
    ):
        with pytest.raises(ValueError, match=r"encoder|taps|float32|finite"):
            replace(weights, **fields)

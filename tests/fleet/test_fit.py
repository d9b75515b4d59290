"""What fits beside the weights, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya_fleet.fleet.placement.fit import (
    FitQuestion,
    Fits,
    MemoryOnPaper,
    Way,
    fits,
    verdict,
)
from kakeya_fleet.fleet.placement.plan import KvStrategy

GIB = 1 << 30
FULL = Way(KvStrategy.FULL, "lossless", 48 * GIB, longest_tokens=16_000, bits=16)
HIGH = Way(KvStrategy.FULL, "high", 14 * GIB, longest_tokens=50_000, bits=4.75)
ECONOMY = Way(KvStrategy.FULL, "economy", 10 * GIB, longest_tokens=70_000, bits=3.75)
RESTORED = Way(KvStrategy.RESTORED, "lossless", 1 * GIB, 47 * GIB, 200_000, 16)
WINDOW = Way(KvStrategy.SINK_WINDOW, "lossless", 1 * GIB, longest_tokens=200_000, bits=16)


def memory(total: int, weights: int = 4, loading: int = 5) -> MemoryOnPaper:
    return MemoryOnPaper(total * GIB, weights * GIB, loading * GIB, total * GIB // 4)


def by_weights(total: int, **weights: int) -> dict[str, MemoryOnPaper]:
    return {name: memory(total, own, own) for name, own in weights.items()}


def asked(total: int, *ways: Way, weights: int = 4, tokens: int = 100_000) -> FitQuestion:
    return FitQuestion("some-model", tokens, min(tokens, 131_072), memory(total, weights), ways)


def test_the_most_exact_way_that_asks_nothing_of_others_is_taken() -> None:
    every = (FULL, HIGH, ECONOMY, RESTORED, WINDOW)
    for total, words in (
        (52, "100,000 tokens fit: full, 48.0 GiB of K/V beside 4.0 GiB of weights."),
        (51, "100,000 tokens fit: full, packed high, 14.0 GiB of K/V beside 4.0 GiB of weights."),
        (14, "100,000 tokens fit: full, packed economy, 10.0 GiB of K/V beside"),
        (13, "100,000 tokens fit: restored, 1.0 GiB of K/V beside 4.0 GiB of weights, and 47.0"),
    ):
        found = verdict(asked(total, *every))
        assert found.fits
        assert found.sentences[0].startswith(words)


def test_one_that_needs_a_larger_budget_says_which() -> None:
    assert fits(ECONOMY, memory(40)) is Fits.YES
    assert fits(ECONOMY, memory(39)) is Fits.WITH_BUDGET
    _, budget = verdict(asked(14, ECONOMY)).sentences
    assert f"--kv-budget-bytes {10 * GIB}" in budget
    assert len(verdict(asked(40, ECONOMY)).sentences) == 1


def test_beside_an_archive_it_says_what_would_do_without() -> None:
    question = replace(asked(13, FULL, ECONOMY, RESTORED), others=by_weights(13, auto=4, int4=2))
    _, fewer, smaller = verdict(question).sentences
    assert fewer == "Without an archive: fewer tokens: 70,000 fit, full, packed economy."
    assert "--weights int4, 2.0 GiB, they fit, full, packed economy" in smaller


def test_why_nothing_fits_and_what_would_mend_it() -> None:
    question = replace(
        asked(14, FULL, HIGH, WINDOW),
        others=by_weights(14, auto=4, int8=3, int4=0),
    )
    found = verdict(question)
    assert not found.fits
    why, fewer, smaller, window = found.sentences
    assert "the least is 14.0 GiB of K/V (full, packed high)" in why
    assert "beside 4.0 GiB of weights 10.0 GiB are left" in why
    assert fewer == "Fewer tokens: 50,000 fit, full, packed high."
    assert "--weights int4" in smaller
    assert "sink_window takes 1.0 GiB" in window
    assert "forgets" in window


def test_a_model_that_cannot_be_loaded_fits_in_no_way() -> None:
    question = replace(asked(14, WINDOW), memory=memory(14, weights=4, loading=15))
    found = verdict(question)
    assert not found.fits
    assert "takes 15.0 GiB at once, of which its weights keep 4.0 GiB" in found.sentences[0]
    assert question.memory.room_bytes == 0
    assert fits(WINDOW, question.memory) is Fits.NO


def test_a_model_that_cannot_be_loaded_is_told_of_the_weights_with_which_it_can() -> None:
    large = memory(14, weights=15, loading=16)
    others = by_weights(14, auto=15, int8=16, int4=5)
    question = replace(asked(14, WINDOW), memory=large, others=others)
    _, smaller = verdict(question).sentences
    assert smaller.startswith("Smaller weights: with --weights int4 it loads, 5.0 GiB, and 9.0 GiB")
    never = replace(question, others=by_weights(14, auto=15))
    assert len(verdict(never).sentences) == 1


def test_what_a_forward_computes_in_is_no_room_for_keys_and_values() -> None:
    found = replace(memory(14), working_bytes=GIB)
    assert found.room_bytes == 9 * GIB
    assert replace(found, working_bytes=10 * GIB).room_bytes == 0
    assert replace(found, working_bytes=10 * GIB + 1).loads is False


def test_the_check_at_a_first_load_must_fit_and_gives_its_room_back() -> None:
    found = replace(memory(14), working_bytes=GIB, checking_bytes=9 * GIB)
    assert (found.loads, found.room_bytes) == (True, 9 * GIB)
    assert replace(found, checking_bytes=9 * GIB + 1).loads is False


def test_tokens_beyond_the_positions_are_said_and_the_positions_judged() -> None:
    found = verdict(asked(400, FULL, tokens=200_000))
    beyond, fit = found.sentences
    assert not found.fits
    assert beyond.startswith("200,000 tokens are beyond the 131,072 positions of some-model")
    assert fit.startswith("131,072 tokens fit: full")


def test_a_way_that_cannot_be_is_never_advised() -> None:
    never = Way(KvStrategy.FULL, "high", problem="heads of 20 channels")
    question = asked(14, FULL, never, WINDOW)
    assert fits(never, question.memory) is Fits.IMPOSSIBLE
    found = verdict(question)
    assert not found.fits
    assert "packed high" not in " ".join(found.sentences)


@pytest.mark.parametrize(
    ("way", "name"),
    [(FULL, "full"), (ECONOMY, "full, packed economy"), (WINDOW, "sink_window")],
)
def test_ways_have_names(way: Way, name: str) -> None:
    assert way.name == name
    assert way.sees_all is (way is not WINDOW)

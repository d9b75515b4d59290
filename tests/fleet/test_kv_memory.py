from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.fleet.placement.kv_memory import kv_bytes, opening_bytes
from kakeya_fleet.fleet.placement.packing import Packing
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest


def test_a_window_takes_the_same_at_any_context(verifier_offer: ModelOffer) -> None:
    for context in (0, 10, 2000):
        for strategy in (KvStrategy.SINK_WINDOW, KvStrategy.RESTORED):
            request = PlanRequest(
                "tiny",
                context_tokens=context,
                kv_strategy=strategy,
                sink_tokens=4,
                window_tokens=64,
            )
            assert kv_bytes(verifier_offer, request) == 1024 * 256


def test_packed_positions_leave_in_whole_tiles(verifier_offer: ModelOffer) -> None:
    packing = Packing("kvarn4", "high", 4.75, 0.0015, "some model")
    # 64 + (65 + 63) + 64 positions are a segment of 256, one more are two.
    for window, slots in ((65, 256), (66, 512)):
        request = PlanRequest(
            "tiny",
            kv_strategy=KvStrategy.RESTORED,
            sink_tokens=4,
            window_tokens=window,
            packing=packing,
        )
        assert kv_bytes(verifier_offer, request) == 1024 * slots
        windowed = replace(request, kv_strategy=KvStrategy.SINK_WINDOW)
        assert kv_bytes(verifier_offer, windowed) == 1024 * 256


def test_full_takes_the_whole_context(verifier_offer: ModelOffer) -> None:
    request = PlanRequest("tiny", context_tokens=1000, kv_strategy=KvStrategy.FULL)
    assert kv_bytes(verifier_offer, request) == 1024 * 1024
    unknown = PlanRequest("tiny", kv_strategy=KvStrategy.FULL)
    assert kv_bytes(verifier_offer, unknown) == 1024 * 2048


def test_one_that_grows_is_opened_with_a_segment_and_takes_as_much_at_most(
    verifier_offer: ModelOffer,
) -> None:
    offer = replace(verifier_offer, kv_fixed_bytes=5)
    bounded = PlanRequest("tiny", context_tokens=1000, kv_strategy=KvStrategy.FULL)
    growing = replace(bounded, grows=True)
    assert opening_bytes(offer, growing) == 1024 * 256 + 5
    assert opening_bytes(offer, bounded) == kv_bytes(offer, growing) == kv_bytes(offer, bounded)
    windowed = replace(growing, kv_strategy=KvStrategy.SINK_WINDOW)
    assert opening_bytes(offer, windowed) == kv_bytes(offer, windowed)


@pytest.mark.parametrize(
    ("context", "slots"),
    [(1, 256), (256, 256), (257, 512), (2048, 2048), (2049, 3072), (3072, 3072), (3073, 4096)],
)
def test_segments_are_wider_above_2048_positions(
    verifier_offer: ModelOffer, context: int, slots: int
) -> None:
    request = PlanRequest("tiny", context_tokens=context, kv_strategy=KvStrategy.FULL)
    assert kv_bytes(verifier_offer, request) == 1024 * slots


@pytest.mark.parametrize(("window", "slots"), [(188, 256), (189, 512), (1980, 2048), (1981, 3072)])
def test_provisional_tokens_count_for_the_segments(
    verifier_offer: ModelOffer, window: int, slots: int
) -> None:
    request = PlanRequest("tiny", sink_tokens=4, window_tokens=window)
    assert kv_bytes(verifier_offer, request) == 1024 * slots


def test_no_memory_is_planned_for_positions_that_the_model_has_not(
    verifier_offer: ModelOffer,
) -> None:
    request = PlanRequest("tiny", sink_tokens=4, window_tokens=10**9)
    longest = verifier_offer.context_length
    assert kv_bytes(verifier_offer, request) == 1024 * (longest + 1024)
    unknown = replace(verifier_offer, context_length=0)
    assert kv_bytes(unknown, request) > 1024 * 10**9


@pytest.mark.parametrize("strategy", KvStrategy)
@pytest.mark.parametrize("context", [0, 100, 2000])
def test_what_is_fixed_is_added_once_whatever_the_request(
    verifier_offer: ModelOffer, strategy: KvStrategy, context: int
) -> None:
    request = PlanRequest("tiny", kv_strategy=strategy, context_tokens=context)
    plain = kv_bytes(verifier_offer, request)
    assert kv_bytes(replace(verifier_offer, kv_fixed_bytes=777), request) == plain + 777


def test_a_model_of_states_alone_takes_its_fixed_bytes(verifier_offer: ModelOffer) -> None:
    recurrent = replace(verifier_offer, kv_bytes_per_token=0, kv_fixed_bytes=5000)
    for strategy in KvStrategy:
        request = PlanRequest("tiny", kv_strategy=strategy, context_tokens=2000)
        assert kv_bytes(recurrent, request) == 5000


def test_one_that_may_be_packed_is_opened_where_it_fits_so(verifier_offer: ModelOffer) -> None:
    bounded = PlanRequest("tiny", context_tokens=1000, kv_strategy=KvStrategy.FULL)
    packing = Packing("kvarn4", "high", 4.75, 0.0016, "a model")
    may = replace(bounded, packing_when_short=packing)
    assert opening_bytes(verifier_offer, may) == kv_bytes(
        verifier_offer, replace(bounded, packing=packing)
    )
    assert opening_bytes(verifier_offer, may) < opening_bytes(verifier_offer, bounded)
    # It is kept as it lies all the same where that is free.
    assert kv_bytes(verifier_offer, may) == kv_bytes(verifier_offer, bounded)

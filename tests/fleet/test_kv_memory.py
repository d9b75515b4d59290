from __future__ import annotations

from fleet.card import ModelOffer
from fleet.kv_memory import kv_bytes
from fleet.plan import KvStrategy, PlanRequest


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


def test_full_takes_the_whole_context(verifier_offer: ModelOffer) -> None:
    request = PlanRequest("tiny", context_tokens=1000, kv_strategy=KvStrategy.FULL)
    assert kv_bytes(verifier_offer, request) == 1024 * 1024
    unknown = PlanRequest("tiny", kv_strategy=KvStrategy.FULL)
    assert kv_bytes(verifier_offer, unknown) == 1024 * 2048

"""The bytes that a plan says a session takes at most are never fewer than are allocated."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.fleet.placement.kv_memory import kv_bytes
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.node.planning.cache_specs import Keeping, cache_spec
from kakeya_fleet.node.planning.plan_wire import published


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    path = random_checkpoint(max_position_embeddings=8192)
    return load_verifier(ModelFolder(path, "random"))


@pytest.fixture(scope="module")
def offer(verifier: Verifier) -> ModelOffer:
    return ModelOffer(
        model_id="random",
        role=Role.VERIFIER,
        kind=ModelKind.AUTOREGRESSIVE,
        context_length=verifier.info.context_length,
        kv_bytes_per_token=verifier.info.kv_bytes_per_token,
        kv_fixed_bytes=verifier.info.kv_fixed_bytes,
    )


@pytest.mark.parametrize("sink", [0, 4, 200])
def test_of_sink_and_window(verifier: Verifier, offer: ModelOffer, sink: int) -> None:
    for window in (1, 44, 64, 241, 250, 300, 1000, 1024, 4096):
        spec = CacheSpec(CacheKind.SINK_WINDOW, sink=sink, window=window)
        planned = kv_bytes(offer, PlanRequest("random", sink_tokens=sink, window_tokens=window))
        taken = verifier.allocate(spec).memory_bytes
        assert verifier.bytes_needed(spec) == taken <= planned, window


@pytest.mark.parametrize("capacity", [1, 255, 256, 257, 2000, 8192])
def test_of_the_full_context(verifier: Verifier, offer: ModelOffer, capacity: int) -> None:
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity)
    request = PlanRequest("random", kv_strategy=KvStrategy.FULL, context_tokens=capacity)
    planned = kv_bytes(offer, request)
    assert verifier.bytes_needed(spec) == verifier.allocate(spec).memory_bytes <= planned


@pytest.mark.parametrize("window", [64, 200, 1024, 8192, 1 << 20])
def test_of_a_packed_full_context(verifier: Verifier, offer: ModelOffer, window: int) -> None:
    """A window of more positions than the model has takes no more than all of them."""
    packing = published("random", PackedQuality.HIGH, "")
    request = PlanRequest(
        "random",
        kv_strategy=KvStrategy.FULL,
        context_tokens=2000,
        packing=packing,
        full_window_tokens=window,
    )
    keeping = Keeping(
        KvStrategy.FULL, 4, 1024, 2000, codec=packing.codec, full_window_tokens=window
    )
    spec = cache_spec(keeping, verifier.info.context_length)
    planned = kv_bytes(offer, request)
    assert verifier.bytes_needed(spec) <= planned
    assert planned <= kv_bytes(offer, replace(request, full_window_tokens=8192))

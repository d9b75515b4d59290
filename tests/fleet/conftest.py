from __future__ import annotations

from collections.abc import Callable

import pytest

from kakeya_fleet.fleet.cards.card import (
    PROTOCOL_MAX,
    PROTOCOL_MIN,
    Accelerator,
    Card,
    ModelKind,
    ModelOffer,
    Role,
    StepCost,
)
from kakeya_fleet.fleet.membership.registry import Registry
from scripts.simulator.cards import signed, simulated_card, verify

MakeCard = Callable[..., Card]


@pytest.fixture
def observer() -> Registry:
    """A registry that knows only its own node, number 99."""
    return Registry(signed(simulated_card(99)), verify, now=0.0)


@pytest.fixture
def verifier_offer() -> ModelOffer:
    """A verifier with a flat step of 10 ms, up to 16 tokens wide, 1,024 bytes a token."""
    return ModelOffer(
        model_id="tiny",
        role=Role.VERIFIER,
        kind=ModelKind.AUTOREGRESSIVE,
        weights_digest="w" * 64,
        tokenizer_digest="t" * 64,
        vocabulary_size=4096,
        context_length=2048,
        kv_bytes_per_token=1024,
        step_costs=(StepCost(1, 0.010), StepCost(16, 0.010)),
        exact=True,
    )


@pytest.fixture
def ngram_offer() -> ModelOffer:
    """A proposer that costs next to nothing."""
    return ModelOffer(
        model_id="ngram",
        role=Role.PROPOSER,
        kind=ModelKind.NGRAM,
        step_costs=(StepCost(1, 0.0001), StepCost(16, 0.0001)),
    )


@pytest.fixture
def make_card() -> MakeCard:
    """Cards for placement, which looks at ids and never at keys."""

    def make(node_id: str, *models: ModelOffer, free: int = 1 << 30, **changes: int) -> Card:
        return Card(
            node_id=node_id,
            name=f"name-{node_id}",
            fleet_name="desk",
            boot_id="boot",
            incarnation=1,
            sequence=0,
            public_key=b"",
            addresses=(f"{node_id}.local:7000",),
            platform="linux/x86_64",
            accelerator=Accelerator("cpu", "test"),
            memory_total_bytes=1 << 34,
            memory_free_bytes=free,
            software_version="0",
            protocol_min=changes.get("protocol_min", PROTOCOL_MIN),
            protocol_max=changes.get("protocol_max", PROTOCOL_MAX),
            models=models,
            ring_address="",
            announced_at_unix=0.0,
            ttl_seconds=60.0,
        )

    return make

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kakeya_fleet.fleet.cards.card import (
    Accelerator,
    ArchiveOffer,
    Card,
    ModelKind,
    ModelOffer,
    Role,
    StepCost,
)
from kakeya_fleet.fleet.cards.rules import MAX_INCARNATION, CardRule, check_card
from kakeya_fleet.fleet.errors import CardRejected
from scripts.simulator.cards import NOW_UNIX, simulated_card

VERIFIER = ModelOffer(
    "tiny",
    Role.VERIFIER,
    ModelKind.AUTOREGRESSIVE,
    tokenizer_digest="t",
    step_costs=(StepCost(1, 0.01), StepCost(16, 0.02)),
)
DRAFTER = replace(VERIFIER, role=Role.PROPOSER, kind=ModelKind.MASKED_DIFFUSION)


def card(**changes: Any) -> Card:
    return replace(simulated_card(1), models=(VERIFIER,), **changes)


def with_model(base: ModelOffer = VERIFIER, **changes: Any) -> Card:
    return replace(simulated_card(1), models=(replace(base, **changes),))


def test_a_good_card_is_accepted() -> None:
    check_card(card(), now_unix=NOW_UNIX)
    check_card(with_model(DRAFTER, step_costs=(StepCost(1, 0.0),)), now_unix=NOW_UNIX)
    check_card(with_model(kv_fixed_bytes=2**64 - 1, backend="mlx"), now_unix=NOW_UNIX)
    check_card(card(announced_at_unix=NOW_UNIX + 86399), now_unix=NOW_UNIX)
    check_card(card(announced_at_unix=0.0, ring_address="h:1"), now_unix=NOW_UNIX)
    check_card(card(host_id="a" * 64), now_unix=NOW_UNIX)
    own = Accelerator("cuda", "H100", 2**64 - 1, 0, ("float32", "bfloat16"))
    check_card(card(accelerator=own), now_unix=NOW_UNIX)
    check_card(card(archive=ArchiveOffer(1 << 40, 0, 7001, "torch")), now_unix=NOW_UNIX)


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (card(node_id=""), CardRule.EMPTY_NODE_ID),
        (card(node_id="a" * 64), CardRule.WRONG_NODE_ID),
        (card(node_id=simulated_card(1).node_id.upper()), CardRule.WRONG_NODE_ID),
        (card(public_key=b"other"), CardRule.WRONG_NODE_ID),
        (card(incarnation=2**64 - 1), CardRule.BAD_INCARNATION),
        (card(incarnation=MAX_INCARNATION + 1), CardRule.BAD_INCARNATION),
        (card(incarnation=-1), CardRule.BAD_INCARNATION),
        (card(sequence=2**32), CardRule.BAD_SEQUENCE),
        (card(boot_id=""), CardRule.BAD_BOOT_ID),
        (card(name="\x1b[2J"), CardRule.BAD_TEXT),
        (card(platform="x" * 257), CardRule.BAD_TEXT),
        (card(host_id="a" * 65), CardRule.BAD_TEXT),
        (card(host_id="\n"), CardRule.BAD_TEXT),
        (card(accelerator=Accelerator("cuda", "x", dtypes=("\x1b",))), CardRule.BAD_TEXT),
        (card(accelerator=Accelerator("cuda", "x", dtypes=("int8",) * 17)), CardRule.BAD_TEXT),
        (card(accelerator=Accelerator("cuda", "x", 2**64)), CardRule.BAD_MEMORY),
        (card(accelerator=Accelerator("cuda", "x", 1, -1)), CardRule.BAD_MEMORY),
        (card(addresses=()), CardRule.NO_ADDRESS),
        (card(addresses=("nowhere",)), CardRule.BAD_ADDRESS),
        (card(addresses=("h:1",) * 17), CardRule.BAD_ADDRESS),
        (card(ring_address="h:99999"), CardRule.BAD_ADDRESS),
        (card(http_address="h"), CardRule.BAD_ADDRESS),
        (card(memory_free_bytes=-1), CardRule.BAD_MEMORY),
        (card(archive=ArchiveOffer(1, 2, 7001, "a")), CardRule.BAD_ARCHIVE),
        (card(archive=ArchiveOffer(2**64, 1, 7001, "a")), CardRule.BAD_ARCHIVE),
        (card(archive=ArchiveOffer(1, 1, 0, "a")), CardRule.BAD_ARCHIVE),
        (card(archive=ArchiveOffer(1, 1, 65536, "a")), CardRule.BAD_ARCHIVE),
        (card(archive=ArchiveOffer(1, 1, 7001, "\x1b[2J")), CardRule.BAD_TEXT),
        (card(protocol_min=2, protocol_max=1), CardRule.BAD_PROTOCOL_RANGE),
        (card(protocol_min=0), CardRule.BAD_PROTOCOL_RANGE),
        (card(announced_at_unix=math.nan), CardRule.BAD_STAMP),
        (card(announced_at_unix=math.inf), CardRule.BAD_STAMP),
        (card(announced_at_unix=-math.inf), CardRule.BAD_STAMP),
        (card(announced_at_unix=-1.0), CardRule.BAD_STAMP),
        (card(announced_at_unix=NOW_UNIX + 86401), CardRule.FUTURE_STAMP),
        (card(ttl_seconds=math.nan), CardRule.BAD_TTL),
        (card(ttl_seconds=math.inf), CardRule.BAD_TTL),
        (card(ttl_seconds=0.0), CardRule.BAD_TTL),
        (replace(card(), models=(VERIFIER, VERIFIER)), CardRule.DUPLICATE_MODEL),
        (
            replace(card(), models=tuple(replace(VERIFIER, model_id=f"m{i}") for i in range(65))),
            CardRule.TOO_MANY_MODELS,
        ),
        (with_model(role="boss"), CardRule.UNKNOWN_ROLE),
        (with_model(kind="magic"), CardRule.UNKNOWN_KIND),
        (with_model(model_id=""), CardRule.BAD_MODEL),
        (with_model(kind=ModelKind.NGRAM), CardRule.BAD_MODEL),
        (with_model(DRAFTER, tokenizer_digest=""), CardRule.BAD_MODEL),
        (with_model(vocabulary_size=-1), CardRule.BAD_MODEL),
        (with_model(kv_bytes_per_token=2**64), CardRule.BAD_MODEL),
        (with_model(kv_fixed_bytes=-1), CardRule.BAD_MODEL),
        (with_model(history_layer_count=-1), CardRule.BAD_MODEL),
        (with_model(history_layer_count=2**16 + 1), CardRule.BAD_MODEL),
        (with_model(kv_fixed_bytes=2**64), CardRule.BAD_MODEL),
        (with_model(target_weights_digest="w"), CardRule.BAD_MODEL),
        (with_model(DRAFTER, feature_width=8), CardRule.BAD_MODEL),
        (with_model(DRAFTER, tapped_layers=(1,), encoder_digest="e"), CardRule.BAD_MODEL),
        (
            with_model(DRAFTER, feature_width=8, tapped_layers=(1,) * 257, encoder_digest="e"),
            CardRule.BAD_MODEL,
        ),
        (
            with_model(DRAFTER, feature_width=8, tapped_layers=(-1,), encoder_digest="e"),
            CardRule.BAD_MODEL,
        ),
        (with_model(DRAFTER, architecture="x\n"), CardRule.BAD_TEXT),
        (with_model(backend="\x1b[2J"), CardRule.BAD_TEXT),
        (with_model(backend="x" * 257), CardRule.BAD_TEXT),
        (with_model(step_costs=(StepCost(1, math.nan),)), CardRule.BAD_STEP_COST),
        (with_model(step_costs=(StepCost(1, math.inf),)), CardRule.BAD_STEP_COST),
        (with_model(step_costs=(StepCost(1, 0.0),)), CardRule.BAD_STEP_COST),
        (with_model(step_costs=(StepCost(2, 0.1), StepCost(2, 0.1))), CardRule.BAD_STEP_COST),
        (with_model(step_costs=(StepCost(0, 0.1),)), CardRule.BAD_STEP_COST),
    ],
)
def test_each_rule_refuses_by_its_name(bad: Card, rule: CardRule) -> None:
    with pytest.raises(CardRejected) as caught:
        check_card(bad, now_unix=NOW_UNIX)
    assert caught.value.rule == rule.value

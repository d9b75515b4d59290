"""What a fleet lacks, as its cards tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kakeya_fleet.fleet.cards.card import ArchiveOffer, Card, ModelKind, ModelOffer, Role
from kakeya_fleet.fleet.views.advice import Advice, advise
from scripts.simulator.cards import simulated_card

VERIFIER = ModelOffer(
    "tiny", Role.VERIFIER, ModelKind.AUTOREGRESSIVE, weights_digest="w", tokenizer_digest="t"
)
NGRAM = ModelOffer("ngram", Role.PROPOSER, ModelKind.NGRAM)
DRAFTER = ModelOffer(
    "drafter",
    Role.PROPOSER,
    ModelKind.DFLASH,
    tokenizer_digest="t",
    target_weights_digest="w",
)
ARCHIVE = ArchiveOffer(1 << 30, 1 << 30, 7001, "torch")


def card(number: int, *models: ModelOffer, **changes: Any) -> Card:
    return replace(simulated_card(number), name=f"mini-{number}", models=models, **changes)


def test_alone_without_a_model_it_wants_a_verifier_first() -> None:
    assert advise(card(1, NGRAM), ()) == Advice(Role.VERIFIER, "", "mini-2")


def test_then_a_proposer_then_an_archive_then_nothing() -> None:
    own = card(1, VERIFIER)
    assert advise(own, ()) == Advice(Role.PROPOSER, "tiny", "mini-2")
    assert advise(own, [card(2, NGRAM)]) == Advice(Role.ARCHIVE, "tiny", "mini-3")
    whole = advise(card(2, NGRAM), [own, card(3, archive=ARCHIVE)])
    assert whole == Advice(None, "tiny", "mini-4")


@pytest.mark.parametrize(
    ("drafter", "lacks"),
    [
        (DRAFTER, Role.ARCHIVE),
        (replace(DRAFTER, target_weights_digest=""), Role.ARCHIVE),
        (replace(DRAFTER, target_weights_digest="other"), Role.PROPOSER),
        (replace(DRAFTER, target_weights_digest="", tokenizer_digest="other"), Role.PROPOSER),
    ],
)
def test_a_proposer_for_another_verifier_is_none(drafter: ModelOffer, lacks: Role) -> None:
    assert advise(card(1, VERIFIER), [card(2, drafter)]).lacks is lacks


def test_while_a_node_loads_nobody_knows_what_is_lacking() -> None:
    assert advise(card(1, NGRAM), [card(2, loading=True)]).lacks is None

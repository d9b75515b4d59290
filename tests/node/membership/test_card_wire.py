import hashlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.cards.card import (
    Accelerator,
    ArchiveOffer,
    ModelKind,
    ModelOffer,
    Role,
    StepCost,
)
from kakeya_fleet.fleet.cards.rules import CardRule
from kakeya_fleet.fleet.errors import CardRejected
from kakeya_fleet.node.membership.card_wire import (
    card_from_wire,
    card_to_wire,
    offer_from_wire,
    offer_to_wire,
    received_from_wire,
    signed_from_wire,
    signed_to_wire,
)
from kakeya_fleet.node.membership.identity import Identity, verifies
from tests.node.conftest import MakeCard
from tests.support.breadth import again

OFFER = ModelOffer(
    model_id="tiny",
    role=Role.VERIFIER,
    kind=ModelKind.AUTOREGRESSIVE,
    weights_digest="aa",
    tokenizer_digest="bb",
    quantization="int4-g64",
    dtype="float32",
    vocabulary_size=4096,
    context_length=2048,
    kv_bytes_per_token=1024,
    step_costs=(StepCost(1, 0.01), StepCost(16, 0.02)),
    exact=True,
    kv_fixed_bytes=2**40,
    backend="torch",
    architecture="Qwen3ForCausalLM",
    target_weights_digest="cc",
    feature_width=256,
    encoder_digest="dd",
    given_history_tokens=2048,
    ends_drafts=True,
    tapped_layers=(0, 3),
    block_size=15,
    history_layer_count=3,
    rank_count=2,
    thread_count=5,
    evicted_arithmetic="torch 2.13",
    arithmetic="torch 2.13 AVX2",
)


ACCELERATOR = Accelerator("cuda", "H100", 2**36, 2**35, ("float32", "bfloat16"))
ARCHIVE = ArchiveOffer(capacity_bytes=2**40, free_bytes=2**39, port=7001, arithmetic="torch 2.13")


def test_every_field_survives_the_wire(make_card: MakeCard) -> None:
    signed = make_card(
        models=(OFFER,),
        ring_address="10.0.0.1:1",
        sequence=7,
        archive=ARCHIVE,
        loading=True,
        http_address="10.0.0.1:2",
        host_id="ab" * 16,
        certificate=b"DER",
        running_seconds=12.5,
        applications_port=7601,
        https_port=7602,
        accelerator=ACCELERATOR,
    )
    values = [getattr(signed.card, name) for name in signed.card.__slots__]
    assert all(values), "a field left at its default proves nothing"
    for offer in (OFFER, ARCHIVE, ACCELERATOR):
        values = [getattr(offer, name) for name in offer.__slots__]
        assert all(values), "a field left at its default proves nothing"
    assert signed_from_wire(signed_to_wire(signed)) == signed


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("kind", list(ModelKind))
def test_every_role_and_kind_has_its_number(role: Role, kind: ModelKind) -> None:
    offer = replace(OFFER, role=role, kind=kind)
    assert offer_from_wire(offer_to_wire(offer)) == offer


def test_what_is_signed_is_the_prefix_and_the_bytes(
    make_card: MakeCard, identity: Identity
) -> None:
    signed = make_card()
    assert verifies(identity.public_key, b"kakeya.v1.card" + signed.card_bytes, signed.signature)
    assert not verifies(identity.public_key, signed.card_bytes, signed.signature)
    assert hashlib.sha256(identity.public_key).hexdigest() == signed.card.node_id


def test_a_field_of_a_later_version_travels_on(make_card: MakeCard) -> None:
    signed = make_card()
    later = signed.card_bytes + b"\xfa\x06\x03new"
    message = capability_pb2.SignedCard(card=later, signature=b"s")
    assert signed_from_wire(message).card_bytes == later


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"role": 0, "kind": 1}, CardRule.UNKNOWN_ROLE),
        ({"role": 99, "kind": 1}, CardRule.UNKNOWN_ROLE),
        ({"role": 1, "kind": 0}, CardRule.UNKNOWN_KIND),
        ({"role": 1, "kind": -5}, CardRule.UNKNOWN_KIND),
    ],
)
def test_unknown_enum_values_are_refused_by_name(
    make_card: MakeCard, change: dict[str, int], rule: CardRule
) -> None:
    wire = card_to_wire(make_card().card)
    wire.models.add(model_id="m", **change)
    with pytest.raises(CardRejected) as caught:
        card_from_wire(wire)
    assert caught.value.rule == rule


def test_an_oversize_card_is_refused_before_it_is_parsed() -> None:
    message = capability_pb2.SignedCard(card=b"\xff" * 65537)
    with pytest.raises(CardRejected) as caught:
        signed_from_wire(message)
    assert caught.value.rule == CardRule.OVERSIZE


@again(3)
@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_card_or_a_rejection(garbage: bytes) -> None:
    received = received_from_wire(capability_pb2.SignedCard(card=garbage))
    assert isinstance(received, CardRejected) or received.card_bytes == garbage


@again(2)
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_damage_to_a_card_is_a_card_or_a_rejection(data: st.DataObject) -> None:
    wire = capability_pb2.CapabilityCard(node_id="ab" * 32, name="n", models=[offer_to_wire(OFFER)])
    whole = bytearray(wire.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    received_from_wire(capability_pb2.SignedCard(card=bytes(whole)))

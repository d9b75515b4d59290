"""A generation's request as the engine takes it, and its tokens as they travel."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.speculation.generation_report import Committed
from kakeya_fleet.node.roles.verifier.report_wire import committed_to_wire
from kakeya_fleet.node.roles.verifier.runtime_wire import GenerationSpec, generation_spec_from_wire

INFO = VerifierInfo(
    model_id="m",
    architecture="a",
    weights_digest="",
    tokenizer_digest="",
    quantization="",
    dtype="float32",
    vocabulary_size=10,
    context_length=100,
    kv_bytes_per_token=1,
    width=4,
)


def spec_of(**fields: Any) -> GenerationSpec:
    request = runtime_pb2.GenerateRequest(max_tokens=1, **fields)
    return generation_spec_from_wire(request, lambda count: b"\1" * count)


def test_what_is_not_given_is_greedy_and_changes_nothing() -> None:
    spec = spec_of()
    assert spec.sampling == SamplingParameters(top_p=0.0)
    assert spec.stop_token_ids == frozenset()


def test_every_field_arrives() -> None:
    spec = spec_of(
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        seed=4,
        min_p=0.125,
        repetition_penalty=1.5,
        logit_bias={7: -2.5, 9: -math.inf},
        top_log_probabilities=0,
        stop_token_ids=[2, 1, 2],
    )
    assert spec.sampling == SamplingParameters(
        0.5, 0.25, 3, 4, 0.125, 1.5, LogitBias.of({7: -2.5, 9: -math.inf}), 0
    )
    assert spec.stop_token_ids == {1, 2}
    spec.check_for_model(INFO)


@pytest.mark.parametrize("penalty", [1 / 64, 64.0])
def test_the_ends_of_the_penaltys_range_survive_the_wires_precision(penalty: float) -> None:
    assert spec_of(repetition_penalty=penalty).sampling.repetition_penalty == penalty


@pytest.mark.parametrize(
    "fields",
    [
        {"logit_bias": {10: 1.0}},
        {"logit_bias": dict.fromkeys(range(10), -math.inf)},
        {"stop_token_ids": [3, 10]},
    ],
)
def test_what_does_not_fit_the_model_is_named(fields: dict[str, object]) -> None:
    with pytest.raises(BadParameters) as caught:
        spec_of(**fields).check_for_model(INFO)
    assert caught.value.metadata["field"] in fields


def test_log_probabilities_and_alternatives_travel_in_the_order_of_their_tokens() -> None:
    committed = Committed((5, 6), 7, 1, (-0.5, -1.5), (((5, -0.5), (1, -2.0)), ((6, -1.5),)))
    tokens = committed_to_wire(committed).tokens
    assert list(tokens.token_ids) == [5, 6]
    assert list(tokens.log_probabilities) == [-0.5, -1.5]
    assert [list(each.token_ids) for each in tokens.alternatives] == [[5, 1], [6]]
    assert [list(each.log_probabilities) for each in tokens.alternatives] == [[-0.5, -2.0], [-1.5]]


def test_no_alternatives_take_no_bytes() -> None:
    with_none = committed_to_wire(Committed((5, 6), 7, 1, (-0.5, -1.5), ((), ())))
    assert not with_none.tokens.alternatives
    plain = committed_to_wire(Committed((5, 6), 7, 1))
    assert not plain.tokens.log_probabilities

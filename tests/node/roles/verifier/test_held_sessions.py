"""Answers that obey a grammar, over the wire: the same stream whoever drafts, and wherever."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from kakeya.text import TextCodec
from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.node.grammars.grammar import MAX_GRAMMAR_BYTES
from tests.support import calls, liars
from tests.support import neighbourhood as nodes
from tests.support.breadth import wide

pytestmark = pytest.mark.asyncio(loop_scope="module")

TINY = Path(__file__).parents[4] / "engine" / "shipped" / "tiny"
CODEC = TextCodec.from_folder(TINY)
PROMPT = CODEC.encode("import os\nimport json\n\n\ndef names(path):\n    " * 4)
"""Past sink and window, of 4 and 32 positions."""
SCHEMA = {
    "type": "object",
    "properties": {
        "names": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z_ ]{3,12}$"},
            "minItems": 5,
            "maxItems": 8,
        },
        "count": {"type": "integer", "minimum": 10, "maximum": 99},
    },
    "required": ["names", "count"],
    "additionalProperties": False,
}
GRAMMAR = wire.Grammar(json_schema=json.dumps(SCHEMA))
SAMPLED: dict[str, Any] = {
    "grammar": GRAMMAR,
    "temperature": 0.8,
    "seed": 11,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.25,
    "stop_token_ids": CODEC.stop_token_ids,
}
MOST = 300
SMALL = {
    "dtype": "float32",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "layer_types": ["full_attention"] * 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "initializer_range": 0.6,
}
"""Of its config: large numbers, so that the next token depends on the text."""


def small(folder: Path) -> Path:
    """A model of random weights with the shipped one's tokenizer."""
    shipped = json.loads((TINY / "config.json").read_text())
    config = Qwen3Config.from_dict(shipped | SMALL)
    torch.manual_seed(7)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, folder / name)
    return folder


ON_TORCH = pytest.mark.parametrize("backend", ["torch", wide("mlx")], indirect=True)
"""What the host does with logits and words, whoever made them."""


@pytest.fixture(scope="module", params=["torch", "mlx"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def caller(
    backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[calls.Caller]:
    """A node that serves a model of this tokenizer, near one that drafts and one that lies.

    On torch the shipped one; on MLX one whose check at load takes a tenth.
    """
    model = TINY if backend == "torch" else small(tmp_path_factory.mktemp("models") / TINY.name)
    settings = replace(nodes.SETTINGS, backend=backend)
    async with nodes.Neighbourhood() as started:
        verifier = await started.start("verifier", f"verifier={model}", settings=settings)
        await started.start("drafts", "proposer=ngram")
        await started.start_liar("liar", liars.garbage())
        yield calls.Caller(verifier.channel)


async def opened(caller: calls.Caller, history: list[int] = PROMPT, **fields: Any) -> str:
    session = await caller.open(model_id="tiny", **fields)
    await caller.append(session, history)
    return session


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def alone(caller: calls.Caller) -> calls.Stream:
    """The stream without a proposer."""
    return await caller.generate(await opened(caller), MOST, **SAMPLED)


async def test_the_answer_fits_and_ends_where_it_is_whole(alone: calls.Stream) -> None:
    value = json.loads(CODEC.decode(alone.token_ids))
    assert sorted(value) == ["count", "names"]
    assert 5 <= len(value["names"]) <= 8
    assert 10 <= value["count"] <= 99
    assert alone.done.stop_reason == wire.STOP_REASON_COMPLETE
    assert len(alone.token_ids) > 32


@pytest.mark.parametrize(("proposer", "size"), [wide("ngram", 1), ("ngram", 15), ("liar", 7)])
async def test_no_proposer_changes_it(
    caller: calls.Caller, alone: calls.Stream, proposer: str, size: int
) -> None:
    session = await opened(caller, mode=calls.FIXED, proposer=proposer, block_size=size)
    stream = await caller.generate(session, MOST, **SAMPLED)
    assert stream.token_ids == alone.token_ids
    assert stream.done.stop_reason == wire.STOP_REASON_COMPLETE
    statistics = stream.done.speculation
    assert statistics.drafted_count >= statistics.accepted_count + statistics.forbidden_count
    if proposer == "liar":
        assert statistics.forbidden_count > 0


@ON_TORCH
async def test_neither_chunks_nor_company_change_it(
    caller: calls.Caller, alone: calls.Stream
) -> None:
    """Half of the company is held too, to something else."""

    async def one(place: int) -> list[int]:
        session = await opened(caller, PROMPT[:1])
        for start in range(1, len(PROMPT), 9 + place):
            await caller.append(session, PROMPT[start : start + 9 + place])
        fields, most = SAMPLED, MOST
        if place == 1:
            # Which ends at its number of tokens alone.
            fields, most = {"temperature": 1.0, "seed": 3}, len(alone.token_ids)
        if place == 2:
            fields = {**SAMPLED, "grammar": wire.Grammar(regex="(ab|c){20,60}")}
        return (await caller.generate(session, most, **fields)).token_ids

    streams = await asyncio.gather(*(one(place) for place in range(4)))
    assert streams[0] == streams[3] == alone.token_ids
    held = CODEC.decode([each for each in streams[2] if each not in CODEC.stop_token_ids])
    assert set(held) <= set("abc")


@pytest.mark.parametrize("share", [wide(0.1), 0.5, wide(0.9)])
async def test_one_that_goes_on_elsewhere_is_the_same(
    caller: calls.Caller, alone: calls.Stream, share: float
) -> None:
    count = int(len(alone.token_ids) * share)
    said, rest = alone.token_ids[:count], alone.token_ids[count:]
    session = await opened(
        caller, [*PROMPT, *said], mode=calls.FIXED, proposer="ngram", block_size=5
    )
    stream = await caller.generate(session, MOST - count, said_token_count=count, **SAMPLED)
    assert stream.token_ids == rest
    assert stream.done.stop_reason == wire.STOP_REASON_COMPLETE


@ON_TORCH
async def test_penalties_alone_go_on_elsewhere_too(caller: calls.Caller) -> None:
    free = {key: value for key, value in SAMPLED.items() if key != "grammar"}
    whole = await caller.generate(await opened(caller), 40, **free)
    session = await opened(caller, [*PROMPT, *whole.token_ids[:15]])
    rest = await caller.generate(session, 25, said_token_count=15, **free)
    assert whole.token_ids[15:] == rest.token_ids


@ON_TORCH
async def test_a_json_object_and_a_lark_grammar(caller: calls.Caller) -> None:
    anything = await caller.generate(
        await opened(caller), 60, grammar=wire.Grammar(json_object=True), temperature=1.0, seed=4
    )
    assert CODEC.decode(anything.token_ids).startswith("{")
    lark = 'start: "yes" | "no" " thanks"'
    answer = await caller.generate(await opened(caller), 60, grammar=wire.Grammar(lark=lark))
    assert CODEC.decode(answer.token_ids) in ("yes", "no thanks")
    assert answer.done.stop_reason == wire.STOP_REASON_COMPLETE


REFUSED = [
    ({"grammar": wire.Grammar(regex="(a")}, "GRAMMAR_REFUSED", "unclosed"),
    ({"grammar": wire.Grammar(json_schema='{"type": "objct"}')}, "GRAMMAR_REFUSED", "objct"),
    ({"grammar": wire.Grammar(json_schema="{")}, "GRAMMAR_REFUSED", "compiled"),
    ({"grammar": wire.Grammar(lark="a: b")}, "GRAMMAR_REFUSED", "compiled"),
    ({"grammar": wire.Grammar(regex="a" * (MAX_GRAMMAR_BYTES + 1))}, "GRAMMAR_REFUSED", "bytes"),
    ({"grammar": wire.Grammar()}, "BAD_REQUEST", "json_schema"),
    ({"grammar": wire.Grammar(json_object=False)}, "BAD_REQUEST", "true"),
    ({"grammar": GRAMMAR, "said_token_count": 3}, "GRAMMAR_REFUSED", "said before"),
    ({"grammar": GRAMMAR, "said_token_count": 1 << 40}, "BAD_REQUEST", "said_token_count"),
    ({"frequency_penalty": 2.5}, "BAD_REQUEST", "frequency_penalty"),
    ({"presence_penalty": float("nan")}, "BAD_REQUEST", "presence_penalty"),
]


@pytest.mark.parametrize(("fields", "reason", "words"), REFUSED)
@ON_TORCH
async def test_what_cannot_be_held_to_is_refused_and_the_session_lives(
    caller: calls.Caller, fields: dict[str, Any], reason: str, words: str
) -> None:
    session = await opened(caller)
    request = wire.GenerateRequest(session_id=session, max_tokens=5, **fields)
    error = await caller.refusal("Generate", request)
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert words in error.text
    assert (await caller.info(session)).history_length == len(PROMPT)
    assert len((await caller.generate(session, 5)).token_ids) == 5

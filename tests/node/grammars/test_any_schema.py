"""Whatever a model would say: an answer that is whole fits its schema."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from functools import cache
from typing import Any

import jsonschema_rs
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llguidance import LLTokenizer

from kakeya.text import TextCodec
from kakeya_fleet.engine.models.digests import tokenizer_digest
from kakeya_fleet.engine.models.model_folder import vocabulary_size
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import SamplingParameters, choose_token
from kakeya_fleet.node.grammars.compiling import compiled
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.matcher_guide import KnownIds, MatcherGuide
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer, read_vocabulary
from tests.node.grammars.conftest import TINY
from tests.support.breadth import again

MOST_TOKENS = 120
NAMES = st.sampled_from(["a", "b c", 'd"', "é", "value"])
Schema = dict[str, Any]


def leaves() -> st.SearchStrategy[Schema]:
    bounds = st.tuples(st.integers(-20, 20), st.integers(0, 30))
    sizes = st.tuples(st.integers(0, 3), st.integers(0, 4))
    return st.one_of(
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        bounds.map(lambda b: {"type": "integer", "minimum": b[0], "maximum": b[0] + b[1]}),
        bounds.map(
            lambda b: {"type": "number", "minimum": b[0], "exclusiveMaximum": b[0] + b[1] + 1}
        ),
        sizes.map(lambda s: {"type": "string", "minLength": s[0], "maxLength": sum(s)}),
        st.sampled_from(["^[a-c]{2,4}$", "x", r"^\d+-\d$"]).map(
            lambda pattern: {"type": "string", "pattern": pattern}
        ),
        st.sampled_from(["date", "ipv4", "uuid"]).map(lambda f: {"type": "string", "format": f}),
        st.lists(
            st.sampled_from(["x", 3, None, True, 'q"\\']), min_size=1, max_size=3, unique_by=repr
        ).map(lambda values: {"enum": values}),
        NAMES.map(lambda value: {"const": value}),
        st.just({}),
    )


def wholes(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    def object_of(properties: Schema, required: int, *, more: bool) -> Schema:
        names = list(properties)
        return {
            "type": "object",
            "properties": properties,
            "required": names[: required % (len(names) + 1)],
            "additionalProperties": more,
        }

    objects = st.builds(
        object_of, st.dictionaries(NAMES, inner, max_size=3), st.integers(0, 3), more=st.booleans()
    )
    arrays = st.builds(
        lambda item, low, more: {
            "type": "array",
            "items": item,
            "minItems": low,
            "maxItems": low + more,
        },
        inner,
        st.integers(0, 2),
        st.integers(0, 2),
    )
    return st.one_of(
        objects, arrays, st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s})
    )


# A model may write -8.00000000000000000002, which is less than -8 though no float tells them apart.
TO_THE_LAST_DIGIT: Schema = {
    "type": "array",
    "items": {"type": "number", "minimum": -11, "exclusiveMaximum": -8},
    "minItems": 2,
    "maxItems": 4,
}
SCHEMAS = st.recursive(leaves(), wholes, max_leaves=5)


@cache
def tiny() -> tuple[LLTokenizer, KnownIds, TextCodec]:
    size = vocabulary_size(TINY)
    vocabulary = read_vocabulary(ModelTokenizer("tiny", "tiny", tokenizer_digest(TINY), size))
    known = KnownIds(size, vocabulary.vocab_size, frozenset(vocabulary.eos_tokens))
    return vocabulary, known, TextCodec.from_folder(TINY)


def beside(text: str) -> float:
    """The number of `text`; where that is no float, the next one on its side of bounds."""
    number = float(text)
    apart = Decimal(text).compare(Decimal(number))
    return math.nextafter(number, math.copysign(math.inf, apart)) if apart else number


@again(2)
@settings(deadline=None, max_examples=75)
@example(TO_THE_LAST_DIGIT, 0, 0.0)
@given(SCHEMAS, st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0]))
def test_a_whole_answer_fits(schema: Schema, seed: int, temperature: float) -> None:
    """Of a model that says anything: its logits are random, with a liking for what ends things."""
    vocabulary, known, codec = tiny()
    grammar = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema, ensure_ascii=False))
    guide = MatcherGuide(compiled(grammar, vocabulary), known)
    stops = frozenset(codec.stop_token_ids)
    answer = Answer(known.model_count, guide=guide, stop_ids=stops)
    parameters = SamplingParameters(temperature, seed=seed)
    rng = np.random.default_rng(seed)
    liked = [each for ending in ('"', "}", "]", '"}', "0") for each in codec.encode(ending)]
    said: list[int] = []
    while len(said) < MOST_TOKENS and not answer.is_complete:
        row = rng.standard_normal(known.model_count).astype(np.float32)
        row[liked] += 4.0
        row[list(stops)] += 6.0
        token = choose_token(row, parameters, len(said), answer=answer)
        if token in stops:
            break
        answer.take([token])
        said.append(token)
    else:
        if not answer.is_complete:
            return
    whole = codec.decode(said)
    value = json.loads(whole, parse_float=beside)
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    assert validator.is_valid(value), (schema, seed, whole)

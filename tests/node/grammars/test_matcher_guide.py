"""A guide is a function of what was taken, whatever was taken and taken back between."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from kakeya.text import TextCodec
from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.compiling import compiled
from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.matcher_guide import KnownIds, MatcherGuide
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer, read_vocabulary
from tests.node.grammars.conftest import GuideOf
from tests.support.breadth import all_wide_but

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
LIST = 'start: item ("," item)*\nitem: /[a-z]{1,4}/ | "(" start ")"'
GRAMMARS = [
    ("json_schema", PERSON),
    ("json_schema", '{"type": "object"}'),
    ("regex", r"(\d{3}-[a-f]+|[x-z]*!)?"),
    ("lark", LIST),
]


@pytest.mark.parametrize(("kind", "text"), GRAMMARS)
@pytest.mark.parametrize("seed", all_wide_but({1}, [1, 2, 3]))
async def test_any_walk_answers_as_one_straight_on(
    guide_of: GuideOf, kind: str, text: str, seed: int
) -> None:
    rng = random.Random(seed)
    wandering = await guide_of(kind, text)
    said: list[int] = []
    for _ in range(40):
        allowed = np.flatnonzero(wandering.allowed()).tolist()
        straight = await guide_of(kind, text)
        straight.take(said)
        assert np.flatnonzero(straight.allowed()).tolist() == allowed, seed
        assert (straight.may_end, straight.is_complete) == (
            wandering.may_end,
            wandering.is_complete,
        ), seed
        forced = wandering.forced()
        assert straight.forced() == forced, seed
        # What is said to be forced has no other way.
        assert not forced or allowed == forced[:1], seed
        sample = rng.sample(allowed, min(3, len(allowed)))
        assert all(wandering.fitting([each]) == 1 for each in sample), seed
        if said and (not allowed or rng.random() < 0.3):
            back = rng.randint(1, min(4, len(said)))
            wandering.take_back(back)
            del said[-back:]
        elif allowed:
            token = rng.choice(allowed)
            # Looking leaves no trace, and nor does what was refused.
            wandering.fitting([token, *rng.choices(range(4096), k=5)])
            wandering.take([token])
            said.append(token)


async def test_text_of_the_grammar_fits_however_it_is_split(
    guide_of: GuideOf, codec: TextCodec
) -> None:
    text = '{"name": "Zoë \\"Q\\"", "age": 41}'
    whole = codec.encode(text)
    letters = [each for character in text for each in codec.encode(character)]
    for ids in (whole, letters):
        guide = await guide_of("json_schema", PERSON)
        assert guide.fitting(ids) == len(ids)
        guide.take(ids)
        assert guide.may_end
        assert guide.is_complete
        assert not guide.allowed().any()
        guide.take_back(1)
        assert not guide.may_end


async def test_where_text_may_end_and_may_go_on(guide_of: GuideOf, codec: TextCodec) -> None:
    guide = await guide_of("regex", "a{1,3}")
    states = []
    for _ in range(3):
        guide.take(codec.encode("a"))
        states.append((guide.may_end, guide.is_complete))
    assert states == [(True, False), (True, False), (True, True)]


async def test_ids_that_end_a_text_and_ids_that_are_none_fit_nowhere(
    guide_of: GuideOf, codec: TextCodec, tokenizer: ModelTokenizer
) -> None:
    guide = await guide_of("regex", "a*")
    end = codec.eos_token_id
    assert end is not None
    a = codec.encode("a")
    assert guide.may_end
    assert not guide.allowed()[end]
    assert guide.fitting([*a, end, *a]) == 1
    for strange in (end, 5000, tokenizer.vocabulary_size):
        assert guide.fitting([strange]) == 0
        with pytest.raises(GrammarRefused, match=f"token {strange}"):
            guide.take([strange])
    # It was not lost by that.
    guide.take(a)
    assert guide.may_end


@pytest.mark.parametrize("model_count", [4000, 4096, 4200])
async def test_a_model_may_have_more_ids_than_its_tokenizer_and_fewer(
    tokenizer: ModelTokenizer, model_count: int
) -> None:
    vocabulary = read_vocabulary(tokenizer)
    matcher = compiled(Grammar(GrammarKind.REGEX, "(?s:.*)"), vocabulary)
    known = KnownIds(model_count, vocabulary.vocab_size, frozenset(vocabulary.eos_tokens))
    guide = MatcherGuide(matcher, known)
    allowed = guide.allowed()
    assert allowed.shape == (model_count,)
    assert not allowed[4096:].any()
    assert guide.fitting([3999, 4095, 4100]) == (1 if model_count == 4000 else 2)


async def test_one_that_costs_too_much_is_lost_by_name(guide_of: GuideOf, codec: TextCodec) -> None:
    """Keys that match a pattern, and keys that do not: its complement grows with each."""
    schema = {
        "type": "object",
        "patternProperties": {"(?s:.*)a.{22}b(?s:.*)": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }
    guide = await guide_of("json_schema", json.dumps(schema))
    guide.take(codec.encode('{"'))
    rng = random.Random(0)
    with pytest.raises(GrammarRefused, match="costs more than its bounds"):
        for _ in range(200):
            guide.take([rng.choice(np.flatnonzero(guide.allowed()).tolist())])
    # What the loop does next must not raise another error.
    guide.take([5])
    guide.take_back(1)
    assert (guide.fitting([5]), guide.may_end, guide.is_complete) == (0, False, False)
    assert guide.forced() == []
    with pytest.raises(GrammarRefused, match="costs more than its bounds"):
        guide.allowed()


async def test_a_token_that_costs_too_much_is_taken_all_the_same(
    guide_of: GuideOf, codec: TextCodec
) -> None:
    """It was allowed, and is committed: what is lost is told with the next one."""
    empty = [f"a{place}: " + f"a{place + 1}? " * 20 for place in range(100)]
    guide = await guide_of("lark", "\n".join(['start: "x" a0', *empty, 'a100: "x"?']))
    x = codec.encode("x")
    assert guide.allowed()[x].all()
    guide.take(x)
    with pytest.raises(GrammarRefused, match="costs more than its bounds"):
        guide.allowed()

"""Answers between two texts."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from kakeya import Client
from kakeya.text import TextCodec
from kakeya.tokenizer_folder import TokenizerFolder
from kakeya_fleet.node.http.infill import MARKS, infill_ids
from kakeya_fleet.node.http.prompt_encoding import PromptBound
from kakeya_fleet.node.http.refusal import HttpRefusal
from tests.node.http.clients import openai
from tests.node.http.conftest import Ask, HttpFleet, OpenAiOf

BOUND = PromptBound("coder", 20, "prompt")
OFF: Any = {"kakeya": {"speculation": "off"}}


def coder(marks: tuple[str, ...], *, opens: bool = False) -> TextCodec:
    """A tokenizer of bytes, with these tokens from 256 on."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    if opens:
        tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 256 + len(marks))]
        )
    return TextCodec(TokenizerFolder(tokenizer, "", {}, (), {}))


@pytest.mark.parametrize("marks", MARKS)
def test_each_family_has_its_own_tokens(marks: tuple[str, ...]) -> None:
    codec = coder(marks)
    a, b = codec.encode("a"), codec.encode("b")
    assert infill_ids(codec, BOUND, "a", "b") == (256, *a, 257, *b, 258)
    assert infill_ids(codec, BOUND, "", "b") == (256, 257, *b, 258)


def test_a_text_is_opened_once() -> None:
    codec = coder(MARKS[0], opens=True)
    a, b = codec.encode("a"), codec.encode("b")
    assert infill_ids(codec, BOUND, "a", "b") == (259, 256, *a, 257, *b, 258)


def test_a_model_without_them_and_texts_that_are_too_long_are_refused_by_name() -> None:
    with pytest.raises(HttpRefusal, match="filling in the middle") as caught:
        infill_ids(coder(MARKS[0][:2]), BOUND, "a", "b")
    assert (caught.value.reason, caught.value.parameter) == ("UNSUPPORTED", "suffix")
    with pytest.raises(HttpRefusal) as caught:
        infill_ids(coder(MARKS[0]), BOUND, "a", "b" * 21)
    assert caught.value.reason == "CONTEXT_EXCEEDED"


def test_a_client_asks_for_what_is_between(fleet: HttpFleet, openai_of: OpenAiOf) -> None:
    answered = openai_of(fleet.gate).completions.create(
        model="toy",
        prompt="def f():",
        suffix="\nf()\n",
        max_tokens=20,
        temperature=0,
        extra_body=OFF,
    )
    with Client(fleet.one.address) as client:
        text = client.text("toy")
        (first,), (second,), (last,) = (text.encode(mark) for mark in MARKS[0])
        prompt = [first, *text.encode("def f():"), second, *text.encode("\nf()\n"), last]
        with client.create_session("toy", tokens=prompt, kv_strategy="full") as session:
            said = session.generate(20, stop_token_ids=text.stop_token_ids).collect()
    expected = text.decode(said.token_ids, skip_special_tokens=True)
    assert answered.choices[0].text == expected
    assert answered.usage is not None
    assert answered.usage.prompt_tokens == len(prompt)


def test_a_served_model_without_them_says_so(
    fleet: HttpFleet, ask: Ask, openai_of: OpenAiOf
) -> None:
    answered = ask(fleet.one, "/v1/completions", {"model": "tiny", "prompt": "a", "suffix": "b"})
    assert (answered.status, answered.code) == (400, "UNSUPPORTED")
    assert answered.json["error"]["param"] == "suffix"
    ollamas = ask(fleet.one, "/api/generate", {"model": "tiny", "prompt": "a", "suffix": "b"})
    assert (ollamas.status, ollamas.json["code"]) == (answered.status, "UNSUPPORTED")
    with pytest.raises(openai.BadRequestError, match="tiny"):
        openai_of(fleet.one).completions.create(model="tiny", prompt="a", suffix="b")

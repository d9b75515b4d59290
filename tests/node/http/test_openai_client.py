"""The official client of OpenAI against a real fleet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import pre_tokenizers

from kakeya import Client
from kakeya.text import TextCodec
from scripts.support.agent_process import AgentProcess
from tests.node.http.clients import openai
from tests.node.http.conftest import HttpFleet, OpenAiOf

if TYPE_CHECKING:
    from openai.types import Completion, CompletionUsage
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionChunk,
        ChatCompletionMessageParam,
        ChatCompletionToolParam,
    )

PROMPT = "import os\nimport sys\n\n\ndef main("
CHAT: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Write a function\nthat adds."}
]
TINY = "engine/shipped/tiny"
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return TextCodec.from_folder(TINY)


@pytest.fixture
def client(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    return openai_of(fleet.one)


def sdk_text(
    fleet: HttpFleet, codec: TextCodec, prompt_ids: list[int], max_tokens: int, **sampling: Any
) -> str:
    with (
        Client(fleet.one.address) as client,
        client.create_session("tiny", kv_strategy="full") as session,
    ):
        session.append(prompt_ids)
        done = session.generate(
            max_tokens, stop_token_ids=codec.stop_token_ids, **sampling
        ).collect()
    ids = [each for each in done.token_ids if each not in codec.stop_token_ids]
    return codec.decode(ids, skip_special_tokens=True)


def usage_of(answer: Completion | ChatCompletion) -> CompletionUsage:
    assert answer.usage is not None
    return answer.usage


def choices_told(answer: Completion | ChatCompletion) -> list[dict[str, Any]]:
    """What the node says of each choice besides."""
    assert answer.model_extra is not None
    told: list[dict[str, Any]] = answer.model_extra["kakeya"]["choices"]
    return told


def text_of(stream: Iterable[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)


def test_models(client: openai.OpenAI) -> None:
    listed = client.models.list().data
    assert {model.id for model in listed} == {"tiny", "toy"}
    tiny = client.models.retrieve("tiny")
    assert (tiny.object, tiny.owned_by) == ("model", "one")
    assert tiny.created > 1_700_000_000
    with pytest.raises(openai.NotFoundError, match="some-org/none") as caught:
        client.models.retrieve("some-org/none")
    assert caught.value.code == "MODEL_NOT_FOUND"


def test_a_completion_is_what_the_sdk_gives(
    fleet: HttpFleet, client: openai.OpenAI, codec: TextCodec
) -> None:
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=24, temperature=0)
    ids = codec.encode(PROMPT, add_special_tokens=True)
    assert answer.choices[0].text == sdk_text(fleet, codec, ids, 24)
    assert answer.choices[0].finish_reason == "length"
    assert answer.object == "text_completion"
    assert (usage_of(answer).prompt_tokens, usage_of(answer).completion_tokens) == (len(ids), 24)
    assert usage_of(answer).total_tokens == len(ids) + 24
    (told,) = choices_told(answer)
    assert told["node"] == fleet.one.address
    assert told["acceptance_length"] == pytest.approx(24 / told["verify_forwards"])


def test_a_seed_names_a_text_and_the_sdks_tokens(
    fleet: HttpFleet, client: openai.OpenAI, codec: TextCodec
) -> None:
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model="tiny", messages=CHAT, max_tokens=24, temperature=0.9, top_p=0.95, seed=seed
        )
        assert choices_told(answer)[0]["seed"] == seed
        said: str | None = answer.choices[0].message.content
        return said

    assert ask(11) == ask(11) != ask(12)
    ids = codec.encode(codec.render_chat(CHAT))
    assert ask(11) == sdk_text(fleet, codec, ids, 24, temperature=0.9, top_p=0.95, seed=11)


def test_a_stream_says_what_the_whole_answer_says(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "messages": CHAT,
        "max_completion_tokens": 30,
        "seed": 5,
    }
    whole = client.chat.completions.create(**asked)
    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_of_a_completion(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "prompt": PROMPT,
        "max_tokens": 20,
        "temperature": 0,
        "echo": True,
    }
    whole = client.completions.create(**asked).choices[0].text
    assert whole.startswith(PROMPT)
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_end_the_answer_and_are_not_in_it(client: openai.OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    free = client.completions.create(**asked).choices[0].text
    # In the middle of the answer, and across its tokens.
    stop = free[len(free) // 2 : len(free) // 2 + 5]
    stops = ["never said", stop]
    if stream:
        chunks = list(client.completions.create(**asked, stop=stops, stream=True))
        text = "".join(chunk.choices[0].text for chunk in chunks)
        reason: str | None = chunks[-1].choices[0].finish_reason
    else:
        answer = client.completions.create(**asked, stop=stops)
        text, reason = answer.choices[0].text, answer.choices[0].finish_reason
        assert usage_of(answer).completion_tokens < 40
    assert (text, reason) == (free[: free.index(stop)], "stop")


def test_the_log_probabilities_of_a_chat(client: openai.OpenAI, codec: TextCodec) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=CHAT, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    scores = answer.choices[0].logprobs
    assert scores is not None
    content = scores.content
    assert content is not None
    assert "".join(each.token for each in content) == answer.choices[0].message.content
    for each in content:
        assert bytes(each.bytes or ()).decode() == each.token
        assert len(each.top_logprobs) == 3
        # Greedy: the first alternative is the token itself.
        assert each.top_logprobs[0].token == each.token
        assert each.top_logprobs[0].logprob == pytest.approx(each.logprob)
        assert each.logprob <= 0
    stream = client.chat.completions.create(
        model="tiny", messages=CHAT, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3,
        stream=True,
    )  # fmt: skip
    streamed = [
        token
        for chunk in stream
        for choice in chunk.choices
        if choice.logprobs
        for token in choice.logprobs.content or ()
    ]
    assert streamed == content


def test_the_log_probabilities_of_a_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=6, temperature=0, logprobs=2
    )
    scored, text = answer.choices[0].logprobs, answer.choices[0].text
    assert scored is not None
    assert scored.tokens is not None
    assert scored.token_logprobs is not None
    assert scored.top_logprobs is not None
    assert "".join(scored.tokens) == text
    lengths = [0]
    for token in scored.tokens[:-1]:
        lengths.append(lengths[-1] + len(token))
    assert scored.text_offset == lengths
    for token, score, top in zip(
        scored.tokens, scored.token_logprobs, scored.top_logprobs, strict=True
    ):
        assert top[token] == pytest.approx(score)


def test_several_answers_of_several_prompts(client: openai.OpenAI) -> None:
    prompts = [PROMPT, "class A:\n"]
    answer = client.completions.create(
        model="tiny", prompt=prompts, n=3, max_tokens=12, temperature=1.0, seed=1
    )
    assert [choice.index for choice in answer.choices] == list(range(6))
    texts = [choice.text for choice in answer.choices]
    assert len(set(texts)) > 3
    # The first of each draws from the seed alone, as if it were asked for alone.
    alone = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=12, seed=1)
    assert alone.choices[0].text == texts[0]
    assert usage_of(answer).completion_tokens == 6 * 12


def test_token_ids_are_a_prompt_too(client: openai.OpenAI, codec: TextCodec) -> None:
    ids = codec.encode(PROMPT, add_special_tokens=True)
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "temperature": 0}
    by_text = client.completions.create(prompt=PROMPT, **asked)
    assert client.completions.create(prompt=ids, **asked).choices == by_text.choices
    with pytest.raises(openai.BadRequestError, match="4096") as caught:
        client.completions.create(prompt=[4096], **asked)
    assert caught.value.code == "TOKEN_OUT_OF_VOCABULARY"


def test_biases_decide(client: openai.OpenAI, codec: TextCodec) -> None:
    (bang,) = codec.encode("!")
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=4, logit_bias={str(bang): 100}
    )
    assert answer.choices[0].text == "!!!!"


@pytest.fixture
def toy_client(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    return openai_of(fleet.one)


def calling(**more: Any) -> dict[str, Any]:
    # A random model says what a bias makes it say: token 257 is a whole call.
    return {
        "model": "toy", "messages": CHAT, "tools": TOOLS, "max_tokens": 1,
        "logit_bias": {"257": 100}, "temperature": 0, **more,
    }  # fmt: skip


def test_calls_of_tools(toy_client: openai.OpenAI) -> None:
    answer = toy_client.chat.completions.create(**calling())
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"city": "Oslo"},
    )
    # The call and the tool's answer go back into the template.
    said = choice.message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    after = toy_client.chat.completions.create(
        **calling(messages=[*CHAT, said, result], logit_bias={"65": 100}, max_tokens=2)
    )
    assert after.choices[0].message.content == toy_text(65) * 2
    assert usage_of(after).prompt_tokens > usage_of(answer).prompt_tokens


def toy_text(token_id: int) -> str:
    return sorted(pre_tokenizers.ByteLevel.alphabet())[token_id]


def test_calls_of_tools_in_a_stream(toy_client: openai.OpenAI) -> None:
    chunks = list(toy_client.chat.completions.create(**calling(stream=True)))
    assert text_of(chunks) == ""
    (call,) = [
        call
        for chunk in chunks
        for choice in chunk.choices
        for call in choice.delta.tool_calls or []
    ]
    assert call.index == 0
    assert call.function is not None
    assert json.loads(call.function.arguments or "") == {"city": "Oslo"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_tools_that_nobody_may_call_are_text(toy_client: openai.OpenAI) -> None:
    answer = toy_client.chat.completions.create(**calling(tool_choice="none"))
    assert "<tool_call>" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "length"


def test_a_template_without_tools_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="has no tools") as caught:
        client.chat.completions.create(model="tiny", messages=CHAT, tools=TOOLS)
    assert (caught.value.code, caught.value.param) == ("UNSUPPORTED", "tools")


def test_errors_are_those_that_the_client_knows(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-x", messages=CHAT)
    assert missing.value.code == "MODEL_NOT_FOUND"
    assert "tiny" in missing.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="x", max_tokens=5000)
    assert caught.value.code == "CONTEXT_EXCEEDED"
    with pytest.raises(openai.BadRequestError, match="modalities"):
        client.chat.completions.create(model="tiny", messages=CHAT, modalities=["audio"])


@pytest.mark.parametrize("stream", [False, True])
def test_any_node_is_a_way_in(fleet: HttpFleet, openai_of: OpenAiOf, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": CHAT, "max_tokens": 16, "seed": 9}

    def text(agent: AgentProcess) -> str | None:
        completions = openai_of(agent).chat.completions
        if stream:
            return text_of(completions.create(**asked, stream=True))
        said: str | None = completions.create(**asked).choices[0].message.content
        return said

    texts = [text(agent) for agent in (fleet.one, fleet.gate)]
    assert texts[0] == texts[1] != ""


def test_how_the_session_is_kept_can_be_chosen(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "prompt": PROMPT * 8,
        "max_tokens": 16,
        "temperature": 0,
    }

    def text(**kakeya: object) -> tuple[str, dict[str, Any]]:
        answer = client.completions.create(**asked, extra_body={"kakeya": kakeya})
        return answer.choices[0].text, choices_told(answer)[0]

    full, told = text()
    assert told["forgotten_tokens"] == 0
    alone, without = text(speculation="off")
    assert alone == full
    assert (without["drafted_tokens"], without["proposer"]) == (0, None)
    pair, fixed = text(speculation={"proposer_model": "ngram"})
    assert (pair, fixed["proposer"]) == (full, "ngram")
    narrow, told = text(kv_strategy="sink_window", window_tokens=16)
    assert told["forgotten_tokens"] > 16
    wide, _told = text(kv_strategy="sink_window", window_tokens=1024)
    assert wide == full != narrow


async def test_the_asynchronous_client(fleet: HttpFleet) -> None:
    address = fleet.gate.ready["http_address"]
    async with openai.AsyncOpenAI(base_url=f"http://{address}/v1", api_key="x") as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=CHAT, max_tokens=8, temperature=0, stream=True
        )
        assert [chunk.choices[0].finish_reason async for chunk in stream][-1] == "length"

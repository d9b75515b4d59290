"""LangChain's client against a real fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, Field, SecretStr

from tests.node.http.conftest import Ask, HttpFleet, http_of

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

# A client more of what others have too: calls that are held, answers and vectors.
pytestmark = pytest.mark.wide


@pytest.fixture
def chat(fleet: HttpFleet) -> Callable[..., ChatOpenAI]:
    # Two seconds, which whoever runs another room's tests need not wait for.
    from langchain_openai import ChatOpenAI  # noqa: PLC0415

    def make(model: str, **options: Any) -> ChatOpenAI:
        address = fleet.gate.ready["http_address"]
        return ChatOpenAI(
            model=model,
            base_url=f"http://{address}/v1",
            api_key=SecretStr("x"),
            max_retries=0,
            **options,
        )

    return make


MESSAGES = [("system", "You write Python."), ("human", "Add two numbers.")]


def test_an_answer_and_its_stream(chat: Callable[..., ChatOpenAI]) -> None:
    model = chat("tiny", max_tokens=16, seed=4, temperature=0.8)
    whole = model.invoke(MESSAGES)
    assert whole.type == "ai"
    assert whole.content
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] == 16
    assert whole.response_metadata["finish_reason"] == "length"
    pieces = list(model.stream(MESSAGES, stream_usage=True))
    assert "".join(str(piece.content) for piece in pieces) == whole.content
    counted = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
    assert counted[-1]["output_tokens"] == 16


def test_tools_are_bound_and_answered(chat: Callable[..., ChatOpenAI]) -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return "rain in " + city

    model = chat("toy", max_tokens=1, temperature=0, logit_bias={257: 100}).bind_tools([weather])
    answer = model.invoke(MESSAGES)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Oslo"})
    result = {"role": "tool", "content": weather(**call["args"]), "tool_call_id": call["id"]}
    again = model.invoke([*MESSAGES, answer, result])
    assert again.usage_metadata is not None
    assert answer.usage_metadata is not None
    assert again.usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"]


async def test_several_at_once(chat: Callable[..., ChatOpenAI]) -> None:
    model = chat("tiny", max_tokens=8, temperature=0)
    answers = await model.abatch([MESSAGES] * 3)
    assert len({answer.content for answer in answers}) == 1


def test_vectors_are_those_of_the_endpoint(fleet: HttpFleet, ask: Ask) -> None:
    from langchain_openai import OpenAIEmbeddings  # noqa: PLC0415

    model = OpenAIEmbeddings(
        model="tiny",
        base_url=f"http://{http_of(fleet.gate)}/v1",
        api_key=SecretStr("x"),
        # It would send ids of OpenAI's own tokenizer.
        check_embedding_ctx_length=False,
    )
    texts = ["def add(a, b):", "class Lake:"]
    told = ask(fleet.gate, "/v1/embeddings", {"model": "tiny", "input": texts}).json["data"]
    expected = [np.asarray(each["embedding"], np.float32).tolist() for each in told]
    assert [
        np.asarray(each, np.float32).tolist() for each in model.embed_documents(texts)
    ] == expected


class Size(BaseModel):
    metres: Literal[10, 20]


class Lake(BaseModel):
    """A lake."""

    name: Annotated[str, Field(max_length=6)]
    size: Size


def test_a_class_is_answered_by_a_call_that_is_held(chat: Callable[..., ChatOpenAI]) -> None:
    """It asks for the one tool by its name, and for one call."""
    model = chat("toy", max_tokens=400, seed=2).with_structured_output(
        Lake, method="function_calling", strict=True
    )
    assert isinstance(model.invoke(MESSAGES), Lake)

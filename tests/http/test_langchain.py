"""LangChain's client against a real fleet."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI


@pytest.fixture
def chat(fleet):
    def make(model: str, **options: object) -> ChatOpenAI:
        address = fleet.gate.ready["http_address"]
        return ChatOpenAI(
            model=model, base_url=f"http://{address}/v1", api_key="x", max_retries=0, **options
        )

    return make


MESSAGES = [SystemMessage("You write Python."), HumanMessage("Add two numbers.")]


def test_an_answer_and_its_stream(chat) -> None:
    model = chat("tiny", max_tokens=16, seed=4, temperature=0.8)
    whole = model.invoke(MESSAGES)
    assert isinstance(whole, AIMessage)
    assert whole.content
    assert whole.usage_metadata["output_tokens"] == 16
    assert whole.response_metadata["finish_reason"] == "length"
    pieces = list(model.stream(MESSAGES, stream_usage=True))
    assert "".join(piece.content for piece in pieces) == whole.content
    counted = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
    assert counted[-1]["output_tokens"] == 16


def test_tools_are_bound_and_answered(chat) -> None:
    def weather(city: str) -> str:
        """The weather of a city."""
        return "rain in " + city

    model = chat("toy", max_tokens=1, temperature=0, logit_bias={257: 100}).bind_tools([weather])
    answer = model.invoke(MESSAGES)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Oslo"})
    result = ToolMessage(weather(**call["args"]), tool_call_id=call["id"])
    again = model.invoke([*MESSAGES, answer, result])
    assert again.usage_metadata["input_tokens"] > answer.usage_metadata["input_tokens"]


async def test_several_at_once(chat) -> None:
    model = chat("tiny", max_tokens=8, temperature=0)
    answers = await model.abatch([MESSAGES] * 3)
    assert len({answer.content for answer in answers}) == 1

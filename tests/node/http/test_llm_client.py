"""The program and library `llm` against a real fleet, by its file of OpenAI-compatible models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.node.http.clients import openai
from tests.node.http.conftest import CALL_ID, HttpFleet, OpenAiOf, http_of

OPTIONS: dict[str, Any] = {"max_tokens": 8, "temperature": 0}
PROMPT = "Say something of lakes"
KINDS: dict[str, dict[str, bool]] = {
    "chat": {"supports_tools": True, "supports_schema": True},
    "text": {"completion": True},
    "responses": {"responses": True},
}


@pytest.fixture
def llm(fleet: HttpFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library with three models, all of them `toy` by the node that does not serve it."""
    # Before it is imported: plugins of others' would run in this process.
    monkeypatch.setenv("LLM_LOAD_PLUGINS", "")
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    base = f"http://{http_of(fleet.gate)}/v1"
    told = [
        {"model_id": f"toy-{name}", "model_name": "toy", "api_base": base, **kinds}
        for name, kinds in KINDS.items()
    ]
    # JSON is YAML.
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(told))
    library: Any = pytest.importorskip("llm", reason="llm is not installed")
    return library


@pytest.fixture
def client(fleet: HttpFleet, openai_of: OpenAiOf) -> openai.OpenAI:
    return openai_of(fleet.one)


def test_a_prompt_is_the_chats_answer_whole_and_streamed(llm: Any, client: openai.OpenAI) -> None:
    model = llm.get_model("toy-chat")
    whole = model.prompt(PROMPT, system="Be brief.", stream=False, **OPTIONS)
    expected = client.chat.completions.create(
        model="toy",
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}],
        **OPTIONS,
    )
    assert whole.text() == expected.choices[0].message.content
    streamed = model.prompt(PROMPT, system="Be brief.", **OPTIONS)
    assert "".join(streamed) == whole.text()
    used = streamed.usage()
    assert expected.usage is not None
    assert (used.input, used.output) == (expected.usage.prompt_tokens, 8)
    conversation = model.conversation()
    conversation.prompt(PROMPT, **OPTIONS).text()
    # What `llm` tells of a conversation is what a node takes as one.
    assert conversation.prompt("Go on", **OPTIONS).text()


def test_text_and_responses_go_on_too(llm: Any, client: openai.OpenAI) -> None:
    text = llm.get_model("toy-text").prompt(PROMPT, **OPTIONS)
    expected = client.completions.create(model="toy", prompt=PROMPT, **OPTIONS)
    assert text.text() == expected.choices[0].text
    answer = llm.get_model("toy-responses").prompt(PROMPT, **OPTIONS)
    other = client.responses.create(model="toy", input=PROMPT, max_output_tokens=8, temperature=0)
    assert answer.text() == other.output_text


def test_a_schema_holds_and_a_tool_is_called(llm: Any) -> None:
    model = llm.get_model("toy-chat")
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    held = model.prompt(PROMPT, schema=schema, max_tokens=200, frequency_penalty=1, seed=3)
    said = held.text()
    if held.usage().output < 200:
        assert json.loads(said)["n"] in (1, 2)

    def weather(city: str) -> str:
        return f"rain in {city}"

    biased = {"max_tokens": 1, "logit_bias": {str(CALL_ID): 100}}
    called = model.prompt("Weather in Oslo?", tools=[llm.Tool.function(weather)], **biased)
    (call,) = called.tool_calls()
    assert (call.name, call.arguments) == ("weather", {"city": "Oslo"})
    (result,) = called.execute_tool_calls()
    assert result.output == "rain in Oslo"

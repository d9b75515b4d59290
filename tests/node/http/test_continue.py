"""What Continue (continue.dev) sends: its chats, its completions of code, its vectors.

The bodies are those of its providers `openai` and `ollama`; what is undefined there is not sent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.node.http.conftest import WEATHER_CALL, Ask, HttpFleet

CODE_STOPS = [
    "<|endoftext|>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|im_start|>",
    "<|im_end|>",
    "/src/",
    "#- coding: utf-8",
    "```",
    "\n\n\n",
    "\ndef",
    "\nclass",
    '\n"""#',
]
"""Of its template for one family, and of its language."""
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "required": ["city"], "properties": {"city": {}}},
    },
}
CHAT = {
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": " ",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        {"role": "tool", "content": "Rain.", "tool_call_id": "call_1"},
        {"role": "user", "content": "And now?"},
    ],
    "model": "toy",
    "max_tokens": 4,
    "temperature": 0.01,
    "stream": True,
    "tools": [TOOL],
    "stream_options": {"include_usage": True},
}
COMPLETION = {
    "model": "toy",
    "max_tokens": 8,
    "temperature": 0.01,
    "stream": True,
    "stop": CODE_STOPS,
    "prompt": "<|fim_prefix|>def add(a, b):\n    return<|fim_suffix|>\n<|fim_middle|>",
}
FIM = {
    "model": "toy",
    "prompt": "def add(a, b):\n    return",
    "suffix": "\n\nadd(1, 2)\n",
    "max_tokens": 8,
    "temperature": 0.01,
    "stop": CODE_STOPS,
    "stream": True,
}
MODEL_FILE = {
    "temperature": 0.01,
    "num_predict": 8,
    "stop": CODE_STOPS,
    "num_ctx": 8192,
    "num_thread": 4,
    "use_mmap": True,
}


def events(body: bytes) -> list[Any]:
    lines = body.decode().split("\n\n")
    told = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert told[-1] == "[DONE]"
    return [json.loads(each) for each in told[:-1]]


def test_a_chat_with_a_tools_result_streams(fleet: HttpFleet, ask: Ask) -> None:
    chunks = events(ask(fleet.gate, "/v1/chat/completions", CHAT).body)
    assert chunks[-1]["usage"]["completion_tokens"] <= 4
    assert chunks[-2]["choices"][0]["finish_reason"] in ("length", "stop")
    calling = {**CHAT, "max_tokens": 1, "logit_bias": {"257": 100}}
    (call,) = [
        each
        for chunk in events(ask(fleet.gate, "/v1/chat/completions", calling).body)
        for choice in chunk["choices"]
        for each in choice["delta"].get("tool_calls", ())
    ]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    assert "Oslo" in WEATHER_CALL


@pytest.mark.parametrize("body", [COMPLETION, FIM], ids=["by its own template", "by the suffix"])
def test_code_is_completed_the_same_by_openais_shape_and_ollamas(
    fleet: HttpFleet, ask: Ask, body: dict[str, Any]
) -> None:
    seeded = {**body, "seed": 5}
    chunks = events(ask(fleet.gate, "/v1/completions", seeded).body)
    text = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
    assert text
    assert not any(stop in text for stop in CODE_STOPS)
    asked = {
        "model": "toy",
        "prompt": body["prompt"],
        "raw": True,
        "options": {**MODEL_FILE, "seed": 5, "top_k": -1, "top_p": 1},
        "keep_alive": 1800,
        "stream": True,
        **({"suffix": body["suffix"]} if "suffix" in body else {}),
    }
    lines = ask(fleet.gate, "/api/generate", asked).body.splitlines()
    assert "".join(json.loads(line)["response"] for line in lines) == text


def test_models_and_vectors_are_found(fleet: HttpFleet, ask: Ask) -> None:
    assert ask(fleet.gate, "/api/show", {"name": "toy"}).status == 200
    texts = ["def add(a, b):", "class Lake:"]
    ours = ask(fleet.gate, "/v1/embeddings", {"model": "toy", "input": texts}).json
    other = ask(fleet.gate, "/api/embed", {"model": "toy", "input": texts}).json
    assert [each["embedding"] for each in ours["data"]] == other["embeddings"]

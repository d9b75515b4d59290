"""The body of OpenAI's /v1/responses as a chat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kakeya_fleet.node.grammars.grammar import Grammar
from kakeya_fleet.node.http.answer_grammar import of_text_format
from kakeya_fleet.node.http.chat_request import (
    MAX_MESSAGES,
    ChatRequest,
    check_tool_count,
    choice_of,
    function_tool,
    template_messages,
)
from kakeya_fleet.node.http.fields import Fields, as_list
from kakeya_fleet.node.http.held_calls import HeldCalls
from kakeya_fleet.node.http.refusal import bad_field, unsupported
from kakeya_fleet.node.http.request_options import (
    MAX_TOKENS,
    RequestOptions,
    read_sampling,
    read_session,
)

HARMLESS = frozenset(
    {
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "user",
    }
)
"""What changes no token: who asks, and what OpenAI would keep or bill."""
KNOWN = HARMLESS | {
    "model",
    "input",
    "instructions",
    "max_output_tokens",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_logprobs",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_tool_calls",
    "text",
    "reasoning",
    "truncation",
    "include",
    "background",
    "previous_response_id",
    "conversation",
    "prompt",
    "kakeya",
}
"""Fields of a body; others are refused by name."""
_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text", "refusal")


def read_response(body: Mapping[str, object]) -> ChatRequest:
    """Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(KNOWN)
    _refuse(fields)
    model = fields.text("model")
    if not model:
        raise bad_field("model", "model is missing; GET /v1/models lists those that are served")
    stream = fields.flag("stream")
    if "stream_options" in fields:
        options = Fields.of(fields.get("stream_options"), "stream_options")
        options.check_known({"include_obfuscation"})
    tools, held = _tools(fields)
    return ChatRequest(
        RequestOptions(
            model=model,
            stream=stream,
            include_usage=True,
            choices=1,
            stops=(),
            max_tokens=fields.whole("max_output_tokens", 1, MAX_TOKENS),
            sampling=replace(read_sampling(fields), grammar=_grammar(fields)),
            session=read_session(fields),
            ignored=fields.present(HARMLESS),
        ),
        _messages(fields),
        tools,
        parameter="input",
        held=held,
    )


def _refuse(fields: Fields) -> None:
    # A node keeps no text of conversations: who asks has it, and sends it again.
    mend = "give the whole conversation as input; the node goes on from what it has computed of it"
    for key in ("previous_response_id", "conversation"):
        fields.refuse(key, (), mend)
    fields.refuse("prompt", (), "give instructions and input")
    fields.refuse("background", (False,), "take the answer while it comes, as a stream")
    fields.refuse("truncation", ("disabled",), "shorten the input yourself")
    fields.refuse("include", ([],), "answers have text and calls of tools alone")
    fields.refuse("max_tool_calls", (), "the tools here are your own: call as many as you like")
    fields.refuse("top_logprobs", (0,), "take /v1/chat/completions")
    fields.refuse(
        "reasoning",
        ({}, {"effort": None}, {"effort": None, "summary": None}, {"effort": "none"}),
        "models here answer as their template says",
    )
    if "text" in fields:
        text = Fields.of(fields.get("text"), "text")
        text.check_known({"format", "verbosity"})
        text.refuse("verbosity", ("medium",), "say in a message how long the answer is to be")


def _grammar(fields: Fields) -> Grammar | None:
    """What `text` says of the answer's form."""
    text = fields.get("text")
    form = text.get("format") if isinstance(text, Mapping) else None
    return None if form is None else of_text_format(Fields.of(form, "text.format"))


def _messages(fields: Fields) -> tuple[Mapping[str, object], ...]:
    given = fields.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    if not 0 < len(items) <= MAX_MESSAGES:
        raise bad_field("input", f"input is a string, or a list of 1 to {MAX_MESSAGES} items")
    messages: list[dict[str, Any]] = []
    if instructions := fields.text("instructions"):
        messages.append({"role": "system", "content": instructions})
    for place, each in enumerate(items):
        _add(messages, Fields.of(each, f"input[{place}]"), f"input[{place}]")
    return template_messages(messages)


def _add(messages: list[dict[str, Any]], item: Fields, name: str) -> None:
    kind = item.text("type", "message")
    if kind == "message":
        role = item.text("role")
        if role not in _ROLES:
            raise bad_field(f"{name}.role", f"{name}.role is one of {', '.join(_ROLES)}")
        messages.append({"role": role, "content": _text(item.get("content"), f"{name}.content")})
    elif kind == "function_call":
        function = {"name": item.text("name"), "arguments": item.text("arguments")}
        call = {"id": item.text("call_id"), "type": "function", "function": function}
        # Calls of one answer are items of their own here, and one message for a template.
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": ""})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = _text(item.get("output"), f"{name}.output")
        messages.append({"role": "tool", "tool_call_id": item.text("call_id"), "content": output})
    else:
        raise unsupported(
            f"{name}.type", f"{name}.type is {kind[:40]!r}; give messages and calls of functions"
        )


def _text(value: object, name: str) -> str:
    """A string, or the text of parts of text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_field(name, f"{name} is a string or a list of parts")
    texts = []
    for place, each in enumerate(value):
        part = Fields.of(each, f"{name}[{place}]")
        kind = part.text("type")
        if kind not in _TEXT_PARTS:
            raise unsupported(
                f"{name}[{place}].type",
                f"{name}[{place}].type is {kind[:40]!r}; models here read text only",
            )
        texts.append(part.text("refusal" if kind == "refusal" else "text"))
    return "".join(texts)


def _tools(fields: Fields) -> tuple[tuple[Mapping[str, object], ...], HeldCalls | None]:
    if "tools" in fields and not isinstance(fields.get("tools"), list):
        raise bad_field("tools", "tools is a list of tools")
    listed = as_list(fields.get("tools"))
    check_tool_count(listed)
    named = [Fields.of(each, f"tools[{place}]") for place, each in enumerate(listed)]
    tools = tuple(_tool(each) for each in named)
    strict = {each.named("strict"): each.text("name") for each in named if each.flag("strict")}
    if fields.get("tool_choice") == "none":
        return (), None
    choice = choice_of(fields, lambda asked: asked.text("name"))
    return tools, choice.held([each.text("name") for each in named], strict)


def _tool(tool: Fields) -> Mapping[str, object]:
    if tool.text("type") != "function":
        raise unsupported(tool.named("type"), "tools here are functions of your own")
    name = tool.text("name")
    if not name:
        raise bad_field(tool.named("name"), f"{tool.named('name')} is missing")
    return function_tool(tool, parameters="parameters")

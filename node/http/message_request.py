"""The body of Anthropic's /v1/messages as a chat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kakeya_fleet.node.http.chat_request import (
    MAX_MESSAGES,
    ChatRequest,
    check_tool_count,
    function_tool,
    template_messages,
)
from kakeya_fleet.node.http.fields import Fields, as_list
from kakeya_fleet.node.http.held_calls import Choice, HeldCalls
from kakeya_fleet.node.http.refusal import bad_field, unsupported
from kakeya_fleet.node.http.request_options import (
    MAX_STOPS,
    MAX_TOKENS,
    RequestOptions,
    read_sampling,
    read_session,
)

HARMLESS = frozenset(
    {
        "metadata",
        "service_tier",
        "inference_geo",
        "cache_control",
        "diagnostics",
        "speed",
        "user_profile_id",
    }
)
"""What changes no token: who asks, and how it would be billed and routed."""
KNOWN = HARMLESS | {
    "model",
    "max_tokens",
    "messages",
    "system",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "tools",
    "tool_choice",
    "thinking",
    "container",
    "mcp_servers",
    "context_management",
    "output_config",
    "kakeya",
}
"""Fields of a body; others are refused by name."""


def read_messages(body: Mapping[str, object]) -> ChatRequest:
    """Raises `HttpRefusal`, naming the field."""
    return _read(body, counts=False)


def read_messages_to_count(body: Mapping[str, object]) -> ChatRequest:
    """The body of /v1/messages/count_tokens, which asks for no answer."""
    return _read(body, counts=True)


def _read(body: Mapping[str, object], *, counts: bool) -> ChatRequest:
    fields = Fields(body)
    fields.check_known(KNOWN)
    _refuse(fields)
    model = fields.text("model")
    if not model:
        raise bad_field("model", "model is missing; GET /v1/models lists those that are served")
    most = fields.whole("max_tokens", 1, MAX_TOKENS)
    if most is None and not counts:
        raise bad_field("max_tokens", "max_tokens is missing")
    options = RequestOptions(
        model=model,
        stream=fields.flag("stream"),
        include_usage=True,
        choices=1,
        stops=fields.texts("stop_sequences", MAX_STOPS),
        max_tokens=most,
        sampling=read_sampling(fields),
        session=read_session(fields),
        ignored=fields.present(HARMLESS),
    )
    tools, held = _tools(fields)
    return ChatRequest(options, _messages(fields), tools, held=held)


def _refuse(fields: Fields) -> None:
    fields.refuse("thinking", ({"type": "disabled"},), "models here answer as their template says")
    for key in ("container", "context_management", "output_config"):
        fields.refuse(key, ({},), "answers are text of the model alone")
    fields.refuse("mcp_servers", ([],), "let your program call them, and give their tools")


def _messages(fields: Fields) -> tuple[Mapping[str, object], ...]:
    listed = as_list(fields.get("messages"))
    if not 0 < len(listed) <= MAX_MESSAGES:
        raise bad_field("messages", f"messages is a list of 1 to {MAX_MESSAGES} messages")
    messages: list[Any] = []
    system = (
        _text(
            fields.get(
                "system",
            ),
            "system",
        )
        if "system" in fields
        else ""
    )
    if system:
        messages.append({"role": "system", "content": system})
    for place, each in enumerate(listed):
        messages.extend(_turn(Fields.of(each, f"messages[{place}]"), f"messages[{place}]"))
    if messages[-1]["role"] == "assistant":
        raise unsupported(
            f"messages[{len(listed) - 1}]",
            "the beginning of an answer cannot be given here; end with a message of the user",
        )
    return template_messages(messages)


def _turn(message: Fields, name: str) -> list[dict[str, Any]]:
    """One message in OpenAI's shape, or several: results of tools are messages there."""
    role = message.text("role")
    if role not in ("user", "assistant"):
        raise bad_field(f"{name}.role", f"{name}.role is user or assistant, not {role[:40]!r}")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise bad_field(f"{name}.content", f"{name}.content is a string or a list of blocks")
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for place, each in enumerate(content):
        at = f"{name}.content[{place}]"
        block = Fields.of(each, at)
        kind = block.text("type")
        if kind == "text":
            texts.append(block.text("text"))
        elif kind == "tool_use" and role == "assistant":
            calls.append(_call(block))
        elif kind == "tool_result" and role == "user":
            results.append(_result(block, at))
        else:
            raise unsupported(
                f"{at}.type", f"{at}.type is {kind[:40]!r}; models here read text, and tools' calls"
            )
    said: dict[str, Any] = {"role": role, "content": "".join(texts)}
    if calls:
        said["tool_calls"] = calls
    return [*results, said] if texts or calls or not results else results


def _call(block: Fields) -> dict[str, Any]:
    function = {"name": block.text("name"), "arguments": block.get("input") or {}}
    return {"id": block.text("id"), "type": "function", "function": function}


def _result(block: Fields, name: str) -> dict[str, Any]:
    content = _text(block.get("content"), f"{name}.content") if "content" in block else ""
    return {"role": "tool", "tool_call_id": block.text("tool_use_id"), "content": content}


def _text(value: object, name: str) -> str:
    """A string, or the text of blocks of text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_field(name, f"{name} is a string or a list of blocks of text")
    texts = []
    for place, each in enumerate(value):
        block = Fields.of(each, f"{name}[{place}]")
        if block.text("type") != "text":
            raise unsupported(f"{name}[{place}].type", f"{name}[{place}] is no text")
        texts.append(block.text("text"))
    return "".join(texts)


def _tools(fields: Fields) -> tuple[tuple[Mapping[str, object], ...], HeldCalls | None]:
    asked = Fields.of(fields.get("tool_choice") or {}, "tool_choice")
    wanted = asked.text("type", "auto")
    if wanted not in ("auto", "any", "tool", "none"):
        raise bad_field("tool_choice", "the type of tool_choice is auto, any, tool or none")
    name = asked.text("name")
    if (wanted == "tool") != bool(name):
        raise bad_field("tool_choice", "tool_choice has a name with the type tool, and only there")
    choice = Choice(
        forces=wanted in ("any", "tool"),
        name=name,
        is_one=asked.flag("disable_parallel_tool_use"),
        one_field="tool_choice.disable_parallel_tool_use",
    )
    listed = as_list(fields.get("tools"))
    if "tools" in fields and not isinstance(fields.get("tools"), list):
        raise bad_field("tools", "tools is a list of tools")
    check_tool_count(listed)
    named = [Fields.of(each, f"tools[{place}]") for place, each in enumerate(listed)]
    tools = tuple(_tool(each) for each in named)
    strict = {each.named("strict"): each.text("name") for each in named if each.flag("strict")}
    if wanted == "none":
        return (), None
    return tools, choice.held([each.text("name") for each in named], strict)


def _tool(tool: Fields) -> Mapping[str, object]:
    if tool.text("type", "custom") != "custom":
        raise unsupported(
            tool.named("type"), f"{tool.named('type')} is a server's; tools here are your own"
        )
    name = tool.text("name")
    if not name:
        raise bad_field(tool.named("name"), f"{tool.named('name')} is missing")
    return function_tool(tool, parameters="input_schema")

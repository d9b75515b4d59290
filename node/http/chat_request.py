"""A chat that is to be answered, whatever its API, and the body of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kakeya import BadMessage, UnsupportedContent
from kakeya.text import from_openai_messages
from kakeya_fleet.node.http.fields import Fields, as_list
from kakeya_fleet.node.http.held_calls import Choice, HeldCalls
from kakeya_fleet.node.http.refusal import bad_field, unsupported
from kakeya_fleet.node.http.request_options import (
    MAX_TOKENS,
    MAX_TOP_LOG_PROBABILITIES,
    SHARED_FIELDS,
    RequestOptions,
    read_options,
)

MAX_MESSAGES = 4096
MAX_TOOLS = 128
HARMLESS = frozenset(
    {
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prediction",
        "user",
        # Of other servers that speak the same: where to compute, and for how long to keep it.
        "cache_prompt",
        "id_slot",
        "keep_alive",
        "priority",
        "provider",
        "session_id",
        "ttl",
    }
)
"""What changes no token: who asks, where others would send it, what they would keep or bill."""
KNOWN = (
    SHARED_FIELDS
    | HARMLESS
    | {
        "messages",
        "max_completion_tokens",
        "top_logprobs",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "chat_template_kwargs",
        "functions",
        "function_call",
        "modalities",
        "audio",
        "reasoning_effort",
        "verbosity",
        "web_search_options",
    }
)
"""Fields of a body; others are refused by name."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A checked body of any API. `messages` are as templates take them.

    `tools` are those that may be called, in OpenAI's shape; `variables` are the template's own.
    `parameter` is what its body calls the conversation; `held` is what calls of the tools are held
    to, None for nothing. Raises `HttpRefusal` for tools beside a grammar.
    """

    options: RequestOptions
    messages: tuple[Mapping[str, object], ...]
    tools: tuple[Mapping[str, object], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    parameter: str = "messages"
    held: HeldCalls | None = None

    def __post_init__(self) -> None:
        """An answer is one of both."""
        if self.tools and self.options.sampling.grammar is not None:
            raise unsupported(
                "tools",
                "an answer that is held to a form is no call of a tool; leave out one of both",
            )

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools."""
        functions = [tool["function"] for tool in self.tools]
        return tuple(str(each["name"]) for each in functions if isinstance(each, Mapping))


def read_chat(body: Mapping[str, object]) -> ChatRequest:
    """Raises `HttpRefusal`, naming the field."""
    fields = Fields(body)
    fields.check_known(KNOWN)
    _refuse(fields)
    top = fields.whole("top_logprobs", 0, MAX_TOP_LOG_PROBABILITIES)
    wanted = fields.flag("logprobs")
    if top is not None and not wanted:
        raise bad_field("top_logprobs", "top_logprobs is only for logprobs = true")
    options = read_options(fields, (top or 0) if wanted else None)
    most = fields.whole("max_completion_tokens", 1, MAX_TOKENS)
    tools, held = read_tools(fields)
    return ChatRequest(
        options=replace(
            options,
            max_tokens=most or options.max_tokens,
            ignored=(*options.ignored, *fields.present(HARMLESS)),
        ),
        messages=_messages(fields),
        tools=tools,
        variables=_variables(fields),
        held=held,
    )


def _refuse(fields: Fields) -> None:
    fields.refuse("modalities", (["text"],), "answers are text")
    fields.refuse("functions", ([],), "give tools")
    fields.refuse("function_call", ("none",), "give tool_choice")
    for key in ("audio", "web_search_options"):
        fields.refuse(key, (), "answers are text of the model alone")
    for key in ("reasoning_effort", "verbosity"):
        fields.refuse(key, (), "give chat_template_kwargs, as far as the model's template has it")


def _variables(fields: Fields) -> Mapping[str, Any]:
    if "chat_template_kwargs" not in fields:
        return {}
    raw = fields.get("chat_template_kwargs")
    if not isinstance(raw, Mapping):
        raise bad_field("chat_template_kwargs", "chat_template_kwargs is a JSON object")
    taken = {"messages", "tools", "add_generation_prompt"} & set(raw)
    if taken:
        name = f"chat_template_kwargs.{min(taken)}"
        raise bad_field(name, f"{name} has a field of its own in the body")
    return dict(raw)


def _messages(fields: Fields) -> tuple[Mapping[str, object], ...]:
    listed: list[Any] = as_list(fields.get("messages"))
    if not 0 < len(listed) <= MAX_MESSAGES:
        raise bad_field("messages", f"messages is a list of 1 to {MAX_MESSAGES} messages")
    return template_messages(listed)


def template_messages(listed: list[Any]) -> tuple[Mapping[str, object], ...]:
    """Messages in OpenAI's shape as templates take them. Raises `HttpRefusal`."""
    try:
        return tuple(from_openai_messages(listed))
    except UnsupportedContent as error:
        raise unsupported(error.field, str(error)) from None
    except BadMessage as error:
        raise bad_field(error.field, str(error)) from None


def read_tools(fields: Fields) -> tuple[tuple[Mapping[str, object], ...], HeldCalls | None]:
    """The tools that may be called, in OpenAI's shape, and what calls are held to.

    Raises `HttpRefusal`.
    """
    listed = as_list(fields.get("tools"))
    if "tools" in fields and not isinstance(fields.get("tools"), list):
        raise bad_field("tools", "tools is a list of tools")
    check_tool_count(listed)
    named = [Fields.of(each, f"tools[{place}]") for place, each in enumerate(listed)]
    tools = tuple(_tool(each, f"tools[{place}]") for place, each in enumerate(named))
    functions = [Fields.of(tool.get("function"), tool.named("function")) for tool in named]
    strict = {each.named("strict"): each.text("name") for each in functions if each.flag("strict")}
    if fields.get("tool_choice") == "none":
        return (), None
    names = [function.text("name") for function in functions]
    return tools, choice_of(fields, _chosen).held(names, strict)


def choice_of(fields: Fields, chosen: Callable[[Fields], str]) -> Choice:
    """What OpenAI's `tool_choice` and `parallel_tool_calls` say, unless it is none.

    `chosen` reads the name of the one function that is to be called. Raises `HttpRefusal`.
    """
    choice = fields.get("tool_choice")
    is_one = "parallel_tool_calls" in fields and not fields.flag("parallel_tool_calls")
    name = ""
    if isinstance(choice, Mapping):
        asked = Fields.of(choice, "tool_choice")
        if asked.text("type") != "function":
            raise unsupported("tool_choice", "tools here are functions")
        name = chosen(asked)
        if not name:
            raise bad_field("tool_choice", "tool_choice names no function")
    elif choice not in (None, "auto", "required"):
        raise bad_field(
            "tool_choice", "tool_choice is auto, none, required, or a function by its name"
        )
    return Choice(forces=choice not in (None, "auto"), name=name, is_one=is_one)


def _chosen(choice: Fields) -> str:
    return Fields.of(choice.get("function"), "tool_choice.function").text("name")


def check_tool_count(listed: Sequence[object]) -> None:
    """Raises `HttpRefusal` for too many."""
    if len(listed) > MAX_TOOLS:
        raise bad_field("tools", f"{len(listed)} tools are more than {MAX_TOOLS}")


def function_tool(tool: Fields, *, parameters: str) -> Mapping[str, object]:
    """A tool of another dialect's, whose schema is its field `parameters`, in OpenAI's shape.

    In the order in which models are shown tools: a template may write them as they come.
    """
    described = {"description": tool.text("description")} if "description" in tool else {}
    schema = tool.get(parameters) or {}
    function = {"name": tool.text("name"), **described, "parameters": schema}
    return {"type": "function", "function": function}


def _tool(tool: Fields, name: str) -> Mapping[str, object]:
    if tool.text("type") != "function":
        raise unsupported(f"{name}.type", f"{name} is no function; tools here are functions")
    function = Fields.of(tool.get("function"), f"{name}.function")
    if not function.text("name"):
        raise bad_field(f"{name}.function.name", f"{name} has no name")
    function.flag("strict")
    raw = tool.get("function")
    kept = {key: each for key, each in raw.items() if key != "strict"} if raw else {}  # type: ignore[attr-defined]
    return {"type": "function", "function": kept}

"""Messages in the shape of OpenAI's chat completions, as chat templates take them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from kakeya.errors import BadMessage, UnsupportedContent

_ROLES = ("system", "developer", "user", "assistant", "tool")
# Names under which servers give a model's reasoning back.
_REASONING = ("reasoning_content", "reasoning", "thinking")
_TOLD = {"role", "content", "refusal", "name", "tool_call_id", "tool_calls", *_REASONING}
# What answers carry besides and no template reads.
_SILENT = {"id", "annotations", "metadata", "weight", "cache_control", "reasoning_details"}
# What would change the answer, and cannot be said: where to say it instead.
_UNSUPPORTED = {
    "audio": "give its transcript as content",
    "images": "models here read text only",
    "function_call": "give tool_calls",
    "prefix": "render the text yourself and append what the answer is to begin with",
}
_TEXT_PARTS = ("text", "refusal")


def from_openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages as `TextCodec.tokens_for_chat` takes them.

    Content parts become one text, "developer" becomes "system", the arguments of tool
    calls become objects; an assistant's reasoning goes along. null stands for a field
    that is not there, as with OpenAI. `field` of an error names what is wrong, as in
    "messages[2].content[0].type". Raises BadMessage, and UnsupportedContent for what
    is no text.
    """
    if not _is_list(messages) or not messages:
        raise _bad("messages", "messages is a list of at least one message")
    return [_message(each, f"messages[{place}]") for place, each in enumerate(messages)]


def _message(value: object, at: str) -> dict[str, Any]:
    given = _object(value, at)
    _check_known(given, at)
    role = _text(given, "role", at)
    if role not in _ROLES:
        raise _bad(f"{at}.role", f"{at}.role is one of {', '.join(_ROLES)}, not {role!r}")
    calls = given.get("tool_calls", [])
    if not _is_list(calls):
        raise _bad(f"{at}.tool_calls", f"{at}.tool_calls is a list of calls, not {_shown(calls)}")
    if role != "assistant" and "content" not in given:
        raise _bad(f"{at}.content", f"{at} has no content")
    # Templates know the older name of the same thing.
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    message["content"] = _content(given, at)
    for key in ("name", "tool_call_id"):
        if key in given:
            message[key] = _text(given, key, at)
    reasoning = next((key for key in _REASONING if key in given), None)
    if reasoning is not None:
        message["reasoning_content"] = _text(given, reasoning, at)
    if calls:
        places = enumerate(calls)
        message["tool_calls"] = [_call(call, f"{at}.tool_calls[{place}]") for place, call in places]
    return message


def _check_known(given: Mapping[str, Any], at: str) -> None:
    """Refuses a field that is not known, so that a mistyped one is not ignored."""
    for key in given.keys() - _TOLD - _SILENT:
        field = f"{at}.{key}"
        if key in _UNSUPPORTED:
            raise _unsupported(
                field, f"{field} cannot be told to a model here; {_UNSUPPORTED[key]}"
            )
        near = difflib.get_close_matches(key, _TOLD, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise _bad(field, f"{field} is no field of a message{hint}")


def _content(given: Mapping[str, Any], at: str) -> str:
    if "content" not in given:
        # An answer that was declined has its words there.
        return _text(given, "refusal", at, default="")
    content = given["content"]
    if not _is_list(content):
        return _text(given, "content", at)
    return "".join(_part(part, f"{at}.content[{place}]") for place, part in enumerate(content))


def _part(value: object, at: str) -> str:
    given = _object(value, at)
    kind = _text(given, "type", at)
    if kind not in _TEXT_PARTS:
        raise _unsupported(
            f"{at}.type", f"{at}.type is {_shown(kind)}; models here read text only, give type text"
        )
    return _text(given, kind, at)


def _call(value: object, at: str) -> dict[str, Any]:
    """A call of an earlier answer; templates take its arguments as an object."""
    given = _object(value, at)
    kind = _text(given, "type", at, default="function")
    if kind != "function":
        raise _unsupported(f"{at}.type", f"{at}.type is {_shown(kind)}; tools here are functions")
    function = _object(given.get("function"), f"{at}.function")
    call = {"type": "function", "function": _function(function, f"{at}.function")}
    return {"id": _text(given, "id", at), **call} if "id" in given else call


def _function(given: Mapping[str, Any], at: str) -> dict[str, Any]:
    arguments = given.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError:
            # What a model wrote is history, right or wrong.
            arguments = given["arguments"]
    elif not isinstance(arguments, Mapping):
        raise _bad(f"{at}.arguments", f"{at}.arguments is JSON, not {_shown(arguments)}")
    return {"name": _text(given, "name", at), "arguments": arguments}


def _object(value: object, at: str) -> Mapping[str, Any]:
    """The object without its nulls."""
    if not isinstance(value, Mapping):
        raise _bad(at, f"{at} is a JSON object, not {_shown(value)}")
    return {key: each for key, each in value.items() if each is not None}


def _text(given: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
    field = f"{at}.{key}"
    value = given.get(key, default)
    if value is None:
        raise _bad(field, f"{at} has no {key}")
    if not isinstance(value, str):
        raise _bad(field, f"{field} is a string, not {_shown(value)}")
    return value


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _shown(value: object) -> str:
    """A value in a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bad(field: str, problem: str) -> BadMessage:
    return BadMessage(problem, metadata={"field": field})


def _unsupported(field: str, problem: str) -> UnsupportedContent:
    return UnsupportedContent(problem, metadata={"field": field})

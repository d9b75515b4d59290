"""Calls of tools in the text of an answer, as the common families of models write them.

<tool_call>{"name": ..., "arguments": {...}}</tool_call>   Hermes, Qwen; any number
[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]       Mistral
{"name": ..., "parameters": {...}}                          Llama 3; the whole answer
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_HERMES = "<tool_call>"
_HERMES_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_MISTRAL = "[TOOL_CALLS]"
_MARKERS = (_HERMES, _MISTRAL)
_PYTHON_TAG = "<|python_tag|>"
_WHOLE = ("{", _PYTHON_TAG)
"""How an answer begins that may be a call as a whole."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: a tool's name, and its arguments as JSON."""

    name: str
    arguments: str


class ToolCallReader:
    """Separates calls from the text in front of them, while the text comes.

    Text goes on at once up to where a call may begin; from there all is held until
    the end. What turns out to be no call is text after all.
    """

    def __init__(self, names: Collection[str]) -> None:
        """`names` are those of the tools that were offered."""
        self._names = frozenset(names)
        self._text = ""
        self._shown = 0

    def push(self, text: str) -> str:
        """What of the text so far is in front of any call."""
        self._text += text
        safe = max(self._shown, self._safe())
        through, self._shown = self._text[self._shown : safe], safe
        return through

    def finish(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The rest of the text, and the calls in their order."""
        rest, self._shown = self._text[self._shown :], len(self._text)
        calls = self._calls(rest)
        return ("", calls) if calls else (rest, ())

    def _safe(self) -> int:
        """Characters that are in front of any call, whatever comes."""
        begun = self._text.lstrip()
        if begun.startswith(_WHOLE) or any(whole.startswith(begun) for whole in _WHOLE):
            return 0
        found = [at for marker in _MARKERS if (at := self._text.find(marker, self._shown)) >= 0]
        if found:
            return min(found)
        held = max(_overlap(self._text, marker) for marker in _MARKERS)
        return len(self._text) - held

    def _calls(self, rest: str) -> tuple[ToolCall, ...]:
        """The calls that `rest` consists of; none when any part of it is not one."""
        written = rest.strip()
        if written.startswith(_HERMES):
            between = _HERMES_CALL.sub("", written).strip()
            bodies = [] if between else [_json(body) for body in _HERMES_CALL.findall(written)]
        elif written.startswith(_MISTRAL):
            listed = _json(written.removeprefix(_MISTRAL))
            bodies = listed if isinstance(listed, list) else [listed]
        elif written.startswith(_WHOLE):
            bodies = [_json(written.removeprefix(_PYTHON_TAG))]
        else:
            return ()
        calls = [self._call(body) for body in bodies]
        return tuple(call for call in calls if call) if all(calls) else ()

    def _call(self, body: object) -> ToolCall | None:
        if not isinstance(body, Mapping):
            return None
        name = body.get("name")
        arguments = body.get("arguments", body.get("parameters", {}))
        # An answer may be JSON for other reasons: a call names a tool that was offered.
        if name not in self._names or not isinstance(arguments, Mapping):
            return None
        return ToolCall(str(name), json.dumps(arguments, ensure_ascii=False))


class AnswerParts:
    """The text of one answer and its calls of tools, which there are none of without tools."""

    def __init__(self, names: Collection[str]) -> None:
        """`names` are those of the tools that were offered."""
        self._reader = ToolCallReader(names) if names else None

    def push(self, text: str) -> str:
        """What of the text so far is surely no call."""
        return self._reader.push(text) if self._reader is not None else text

    def finish(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The rest of the text, and the calls in their order."""
        return self._reader.finish() if self._reader is not None else ("", ())


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _overlap(text: str, marker: str) -> int:
    """The most characters at the end of `text` that begin `marker`."""
    sizes = range(min(len(text), len(marker)), 0, -1)
    return next((size for size in sizes if text.endswith(marker[:size])), 0)

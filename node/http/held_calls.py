"""Calls of tools that are held: to their schemas, to some tools, or to be there at all.

A call is held as the model writes it: where its template has the form of Hermes and Qwen 3, which
`tool_calls` reads. Text in front of a call is free, and so is an answer without one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kakeya import TextError
from kakeya.text import TextCodec, from_openai_messages
from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.compiling import WHITESPACE
from kakeya_fleet.node.grammars.grammar import COMPLEMENT, Grammar, GrammarKind
from kakeya_fleet.node.http.refusal import HttpRefusal, bad_field, unsupported

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_NOTES = frozenset({"title", "description", "examples", "default", "$comment"})
"""What a schema says to people; it holds nothing, and a grammar has bounds."""
_OF_NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""What has schemas by names, which may be those of `_NOTES`."""
_OF_VALUES = frozenset({"enum", "const", "required"})
_TRIED = {"name": "f", "arguments": {"a": 1}}


@dataclass(frozen=True, slots=True)
class HeldCalls:
    """How the calls of an answer are held; `parameter` is the field that says so.

    Of the tools `strict` the arguments fit their schema, of others they are any JSON object. Only
    those of `names` are called; with `must_call` the answer is calls and nothing else, and with
    `is_one` there is one at most.
    """

    parameter: str
    names: tuple[str, ...]
    strict: frozenset[str] = frozenset()
    must_call: bool = False
    is_one: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What a body says of which tools are called, in the words of any API.

    `forces` says that a call is to be there, of the tool `name` if that is not empty, and `is_one`
    that there is one at most; `field` and `one_field` are the fields that say so.
    """

    field: str = "tool_choice"
    forces: bool = False
    name: str = ""
    is_one: bool = False
    one_field: str = "parallel_tool_calls"

    def held(self, names: Sequence[str], strict: Mapping[str, str]) -> HeldCalls | None:
        """What calls of the tools `names` are held to; None for nothing.

        `strict` has the tools whose schemas hold, by the fields that say so. Raises `HttpRefusal`
        for the choice of a tool that is not there.
        """
        if self.forces and (not names or (self.name and self.name not in names)):
            raise bad_field(
                self.field, f"{self.field} asks for a tool that is not among those of tools"
            )
        if not (strict or self.forces or self.is_one) or not names:
            return None
        because = self.field if self.forces else next(iter(strict), self.one_field)
        return HeldCalls(
            because,
            (self.name,) if self.name else tuple(names),
            frozenset(strict.values()),
            must_call=self.forces,
            # Who asks for one tool gets it once.
            is_one=self.is_one or bool(self.name),
        )


def held_grammar(
    codec: TextCodec, model: str, tools: Sequence[Mapping[str, object]], held: HeldCalls
) -> Grammar:
    """What an answer of `model` may be, which was offered `tools`. Raises `HttpRefusal`."""
    if not _writes_hermes(codec):
        raise unsupported(
            held.parameter,
            f"the chat template of {model} writes calls in a form that cannot be held, or none; "
            f"leave out {held.parameter}",
        )
    called = [tool for tool in tools if _name(tool) in held.names]
    try:
        schemas = [_schema(tool, held) for tool in called]
        text = _lark(codec, [_name(tool) for tool in called], schemas, held)
        return Grammar(GrammarKind.LARK, text)
    except RecursionError:
        raise bad_field(held.parameter, "the schema of a tool is nested too deep") from None
    except GrammarRefused as error:
        raise HttpRefusal(error.reason, str(error), parameter=held.parameter) from None


def _writes_hermes(codec: TextCodec) -> bool:
    """Whether a call in the history is told as `_TRIED` within the marks."""
    function = {"name": _TRIED["name"], "arguments": json.dumps(_TRIED["arguments"])}
    call = {"id": "call_1", "type": "function", "function": function}
    messages = from_openai_messages(
        [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
    )
    tool = {"type": "function", "function": {"name": _TRIED["name"], "parameters": {}}}
    try:
        text = codec.render_chat(messages, tools=[tool], add_generation_prompt=False)
    except TextError:
        return False
    # A template may show the form in its own words before.
    _, opened, behind = text.rpartition(OPENING)
    written, closed, _ = behind.partition(CLOSING)
    try:
        return bool(opened and closed and json.loads(written) == _TRIED)
    except ValueError:
        return False


def _lark(
    codec: TextCodec, names: Sequence[str], schemas: Sequence[object], held: HeldCalls
) -> str:
    """In llguidance's dialect; TEXT ends where a call begins."""
    opening, closing = _mark(codec, OPENING), _mark(codec, CLOSING)
    more = "" if held.is_one else " more*"
    calls = " | ".join(f"call_{index}" for index in range(len(names)))
    rules = [
        f"start: {opening} call{more}" if held.must_call else f"start: TEXT | head call{more}",
        f"call: /\\n?/ ( {calls} ) /\\n?/ {closing}",
    ]
    if not held.must_call:
        is_text = opening.startswith('"')
        rules.append(f"head{'[lazy]' if is_text else ''}: TEXT {opening}")
        rules.append("TEXT: /(.|\\n)*/")
    if more:
        rules.append(f"more: /\\n?/ {opening} call")
    for index, (name, schema) in enumerate(zip(names, schemas, strict=True)):
        begun = json.dumps(f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": ')
        rules.append(f'call_{index}: {begun} arguments_{index} "}}"')
        rules.append(f"arguments_{index}: %json {json.dumps(schema)}")
    return "\n".join(rules).replace(COMPLEMENT, "\\u007e")


def _mark(codec: TextCodec, mark: str) -> str:
    """A token of its own, where the tokenizer has one, which stands for no text; else text."""
    return mark if len(codec.encode(mark)) == 1 else json.dumps(mark)


def _function(tool: Mapping[str, object]) -> Mapping[str, object]:
    function = tool["function"]
    return function if isinstance(function, Mapping) else {}


def _name(tool: Mapping[str, object]) -> str:
    return str(_function(tool)["name"])


def _schema(tool: Mapping[str, object], held: HeldCalls) -> object:
    parameters = _function(tool).get("parameters") if _name(tool) in held.strict else None
    bare = _bare(parameters) if isinstance(parameters, Mapping) else {}
    # A call's arguments are an object, whatever its schema leaves open.
    return {"type": "object", **bare, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def _bare(schema: Mapping[str, object]) -> dict[str, object]:
    """Without notes to people."""
    bare: dict[str, object] = {}
    for key, value in schema.items():
        if key in _OF_VALUES:
            bare[key] = value
        elif key in _OF_NAMES and isinstance(value, Mapping):
            bare[key] = {name: _bare_value(each) for name, each in value.items()}
        elif key not in _NOTES:
            bare[key] = _bare_value(value)
    return bare


def _bare_value(value: object) -> object:
    if isinstance(value, Mapping):
        return _bare(value)
    if isinstance(value, list):
        return [_bare_value(each) for each in value]
    return value

"""Chat templates, rendered in a sandbox: they come from the hub, and are not trusted.

A template is what the hub's models ship: Jinja with blocks trimmed, loop controls, and
`raise_exception`, `strftime_now`, `tojson` and `generation` blocks. It reads what it is given,
calls nothing that changes it and nothing with an underscore, and a `range` has at most
100,000 numbers. All loops and macros together take at most `MOST_STEPS` steps, so that one
which loops within loops, or calls itself twice, ends by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Call, ExprStmt, For, ImportedName, Macro, Node, Or, Scope, Template
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from kakeya.errors import ChatTemplateError

# What running a template's own mistakes raises, besides Jinja's errors.
_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
# Names under which a message's reasoning is passed; templates read the first.
_REASONING = ("reasoning_content", "thinking", "reasoning")


MOST_STEPS = 1_000_000
"""Turns of loops and calls of macros in one rendering: a few seconds of a core."""
_steps: ContextVar[list[int]] = ContextVar("steps of a rendering")


class ChatTemplate:
    """A compiled template. Raises ChatTemplateError when it cannot be compiled."""

    def __init__(self, source: str) -> None:
        try:
            self._template = _ENVIRONMENT.from_string(source)
        except _FAILURES as error:
            raise _failure("the model's chat template cannot be read", error) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        variables: Mapping[str, Any],
    ) -> str:
        """The chat's text. Raises ChatTemplateError, with the template's own words."""
        if not messages:
            raise ChatTemplateError("a chat without messages: give at least one")
        taken = _steps.set([0])
        try:
            return self._template.render(
                {
                    "documents": None,
                    **_plain(variables),
                    "messages": [_message(_plain(message)) for message in messages],
                    "tools": None if tools is None else _plain(list(tools)),
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except _FAILURES as error:
            raise _failure("the model's chat template does not take this chat", error) from None
        finally:
            _steps.reset(taken)


def count_step() -> str:
    """One more turn of a loop, or call of a macro; nothing to print. For compiled templates."""
    taken = _steps.get()
    taken[0] += 1
    if taken[0] > MOST_STEPS:
        raise jinja2.TemplateRuntimeError(f"it takes more than {MOST_STEPS:,} steps")
    return ""


def _failure(what: str, error: BaseException) -> ChatTemplateError:
    detail = str(error) or type(error).__name__
    line = getattr(error, "lineno", None)
    return ChatTemplateError(
        f"{what} ({detail}): change the messages or tools to what the template takes, or "
        "render the text yourself",
        metadata={"detail": detail, "error": type(error).__name__}
        | ({"line": str(line)} if line else {}),
    )


def _plain(value: Any) -> Any:
    """A copy out of JSON's own types, which have no methods of the application."""
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Mapping():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    raise ChatTemplateError(
        f"a chat holds values of JSON, not {type(value).__name__}: convert it first"
    )


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without its nulls, its reasoning under the names that templates read."""
    # Clients send null content and tool calls; templates would write "None".
    given = {name: value for name, value in message.items() if value is not None}
    reasoning = next((given[name] for name in _REASONING if name in given), None)
    if reasoning is None:
        return given
    return {"thinking": reasoning, **given, "reasoning_content": reasoning}


class _Generation(Extension):
    """`{% generation %}`, which marks a model's own words for training."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return Scope(body, lineno=line)


class _Namespace(Namespace):
    """A namespace without underscores: those lead to Python's own attributes."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        namespace, *given = args
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(namespace, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace takes no attribute {name!r}")


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now(UTC).astimezone().replace(tzinfo=None).strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _dict(*args: Iterable[Any], **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


class _CountingEnvironment(ImmutableSandboxedEnvironment):
    """Counts the steps of what it compiles. No template can name what counts them."""

    def _parse(self, source: str, name: str | None, filename: str | None) -> Template:
        tree = super()._parse(source, name, filename)
        # What is found does not grow by what is put in.
        found: list[For | Macro] = [*tree.find_all(For), *tree.find_all(Macro)]
        for node in found:
            node.body.insert(0, ExprStmt(_counting(node.lineno), lineno=node.lineno))
            if isinstance(node, For) and node.test is not None:
                # Turns that it leaves out are turns.
                node.test = Or(_counting(node.lineno), node.test, lineno=node.lineno)
        return tree


def _counting(line: int) -> Call:
    """A call of `count_step`, whose answer is false."""
    counter = ImportedName("kakeya.chat_template.count_step", lineno=line)
    return Call(counter, [], [], None, None, lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _CountingEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _dict,
        "namespace": _Namespace,
    }
    return environment


_ENVIRONMENT = _environment()

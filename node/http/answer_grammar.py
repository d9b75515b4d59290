"""What a body says that its answers are to be, in the words of each API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.grammar import ANY_OBJECT, Grammar, GrammarKind
from kakeya_fleet.node.http.fields import Fields
from kakeya_fleet.node.http.refusal import HttpRefusal, bad_field

STRUCTURED = frozenset({"json", "json_object", "regex", "choice", "grammar"})
"""What vLLM's `structured_outputs` says, one of them."""
GUIDED = frozenset({f"guided_{name}" for name in STRUCTURED - {"json_object"}})
"""The same as vLLM's older fields of their own."""
FIELDS = GUIDED | {"structured_outputs"}
"""Of both endpoints' bodies."""
MAX_CHOICES = 2000
RESPONSE_FORMAT = "response_format"
OBJECT = Grammar(GrammarKind.JSON_SCHEMA, ANY_OBJECT)
"""Any JSON object."""


def read_grammar(fields: Fields) -> Grammar | None:
    """What `FIELDS` and `RESPONSE_FORMAT` say; None for any answer. Raises `HttpRefusal`."""
    found: dict[str, Grammar] = {}
    if RESPONSE_FORMAT in fields:
        form = _of_format(Fields.of(fields.get(RESPONSE_FORMAT), RESPONSE_FORMAT))
        if form is not None:
            found[RESPONSE_FORMAT] = form
    if "structured_outputs" in fields:
        inner = Fields.of(fields.get("structured_outputs"), "structured_outputs")
        inner.check_known(STRUCTURED)
        found |= _of_vllm(inner, "", STRUCTURED)
    found |= _of_vllm(fields, "guided_", STRUCTURED - {"json_object"})
    if len(found) > 1:
        first, second, *_ = found
        raise bad_field(second, f"an answer is held to one of {first} and {second}")
    return next(iter(found.values()), None)


def of_text_format(form: Fields) -> Grammar | None:
    """What the `text.format` of OpenAI's responses says. Raises `HttpRefusal`."""
    if form.text("type") != "json_schema":
        return _of_format(form)
    # As in `response_format`, but without an object of its own.
    form.check_known({"type", "name", "description", "schema", "strict"})
    form.flag("strict")
    return schema_grammar(form.named("schema"), form.get("schema"))


def of_ollama_format(value: object) -> Grammar | None:
    """What Ollama's `format` says: "json", or a schema. Raises `HttpRefusal`."""
    if value in (None, ""):
        return None
    if value == "json":
        return OBJECT
    if not isinstance(value, Mapping):
        raise bad_field("format", 'format is "json" or a JSON schema, as an object')
    return schema_grammar("format", value)


def _of_format(form: Fields) -> Grammar | None:
    match form.text("type"):
        case "text":
            form.check_known({"type"})
            return None
        case "json_object":
            form.check_known({"type"})
            return OBJECT
        case "json_schema":
            form.check_known({"type", "json_schema"})
            inner = Fields.of(form.get("json_schema"), form.named("json_schema"))
            # `strict` or not: the schema holds.
            inner.check_known({"name", "description", "schema", "strict"})
            inner.flag("strict")
            return schema_grammar(inner.named("schema"), inner.get("schema"))
        case other:
            name = form.named("type")
            raise bad_field(
                name, f"{name} is text, json_object or json_schema, not {str(other)[:40]!r}"
            )


def _of_vllm(fields: Fields, prefix: str, names: frozenset[str]) -> dict[str, Grammar]:
    """Each of the fields that is there, by its whole name."""
    readers: Mapping[str, Callable[[str, object], Grammar | None]] = {
        "json": schema_grammar,
        "json_object": _any_object,
        "regex": _regex,
        "choice": _choice,
        "grammar": _lark,
    }
    read = {
        fields.named(f"{prefix}{name}"): readers[name](
            fields.named(f"{prefix}{name}"), fields.get(f"{prefix}{name}")
        )
        for name in sorted(names)
        if f"{prefix}{name}" in fields
    }
    return {name: grammar for name, grammar in read.items() if grammar is not None}


def schema_grammar(name: str, value: object) -> Grammar:
    """A schema, as an object or as its JSON, of the field `name`. Raises `HttpRefusal`."""
    if isinstance(value, str) and value:
        return _grammar(name, GrammarKind.JSON_SCHEMA, value)
    if not isinstance(value, Mapping | bool):
        raise bad_field(name, f"{name} is a JSON schema")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _grammar(name, GrammarKind.JSON_SCHEMA, text)


def _any_object(name: str, value: object) -> Grammar | None:
    if not isinstance(value, bool):
        raise bad_field(name, f"{name} is true or false")
    return OBJECT if value else None


def _regex(name: str, value: object) -> Grammar:
    return _grammar(name, GrammarKind.REGEX, _text(name, value))


def _lark(name: str, value: object) -> Grammar:
    return _grammar(name, GrammarKind.LARK, _text(name, value))


def _choice(name: str, value: object) -> Grammar:
    """One of several texts, as a regular expression."""
    fits = isinstance(value, list) and 0 < len(value) <= MAX_CHOICES
    if not (fits and isinstance(value, list) and all(isinstance(e, str) and e for e in value)):
        raise bad_field(
            name, f"{name} is a list of 1 to {MAX_CHOICES} strings, none of which is empty"
        )
    return _grammar(name, GrammarKind.REGEX, "|".join(map(_literal, value)))


def _literal(text: str) -> str:
    """A regular expression that matches this text alone."""
    return "".join(
        each if each.isascii() and (each.isalnum() or each in " _,;") else f"\\x{{{ord(each):x}}}"
        for each in text
    )


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise bad_field(name, f"{name} is a string that is not empty")
    return value


def _grammar(name: str, kind: GrammarKind, text: str) -> Grammar:
    try:
        return Grammar(kind, text)
    except GrammarRefused as refused:
        raise HttpRefusal(refused.reason, str(refused), parameter=name) from None

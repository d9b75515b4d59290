"""What answers are held to, as a request says it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kakeya.errors import BadRequest
from kakeya.options import GenerateOptions
from kakeya.v1 import runtime_pb2

MAX_GRAMMAR_BYTES = 65_536
"""Of a schema's JSON, a regular expression or a grammar, in UTF-8."""
FIELDS = ("json_schema", "json_object", "regex", "lark")


def grammar(options: GenerateOptions) -> runtime_pb2.Grammar | None:
    """What of `FIELDS` is given; None for nothing. Raises BadRequest, also for several."""
    given = [field for field in FIELDS if options.get(field) not in (None, False)]
    if len(given) > 1:
        raise _refused(given[1], f"an answer is held to one of {given[0]} and {given[1]}")
    if not given:
        return None
    (field,) = given
    value = options.get(field)
    if field == "json_object":
        return runtime_pb2.Grammar(json_object=True)
    text = _schema_text(value) if field == "json_schema" else value
    if not isinstance(text, str) or not text:
        raise _refused(field, f"{field} is a text that is not empty")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _refused(field, f"{field} has half a character, which UTF-8 cannot write") from None
    if size > MAX_GRAMMAR_BYTES:
        raise _refused(
            field, f"{field} is a text of at most {MAX_GRAMMAR_BYTES:,} bytes, not {size:,}"
        )
    message = runtime_pb2.Grammar()
    setattr(message, field, text)
    return message


def _schema_text(schema: object) -> object:
    """A schema's JSON, as JavaScript writes it; what is no mapping stays what it is."""
    if not isinstance(schema, Mapping):
        return schema
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused("json_schema", f"json_schema cannot be written as JSON: {error}") from None


def _refused(field: str, message: str) -> BadRequest:
    return BadRequest(message, metadata={"field": field})

"""What docs/openapi.json says of answers that are held to a form, in the words of each API."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_fleet.node.http.answer_grammar import MAX_CHOICES as MOST_TEXTS
from scripts.write.openapi_parts import ANYTHING, BOOLEAN, Schema, one_of

TEXT: Schema = {"type": "string", "minLength": 1}
JSON_SCHEMA: Schema = {"oneOf": [{"type": "object"}, BOOLEAN, TEXT]}
STRUCTURED: Mapping[str, Schema] = {
    "json": JSON_SCHEMA,
    "json_object": BOOLEAN,
    "regex": TEXT,
    "choice": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MOST_TEXTS},
    "grammar": TEXT,
}
"""What an answer is held to, in vLLM's names."""
RESPONSE_FORMAT: Schema = {
    "oneOf": [
        {
            "type": "object",
            "required": ["type"],
            "additionalProperties": False,
            "properties": {"type": one_of("text", "json_object")},
        },
        {
            "type": "object",
            "required": ["type", "json_schema"],
            "additionalProperties": False,
            "properties": {
                "type": one_of("json_schema"),
                "json_schema": {
                    "type": "object",
                    "required": ["schema"],
                    "additionalProperties": False,
                    "properties": {
                        "name": ANYTHING,
                        "description": ANYTHING,
                        "schema": JSON_SCHEMA,
                        "strict": BOOLEAN,
                    },
                },
            },
        },
    ]
}
TEXT_FORMAT: Schema = {
    "oneOf": [
        RESPONSE_FORMAT["oneOf"][0],
        {
            "type": "object",
            "required": ["type", "schema"],
            "additionalProperties": False,
            "properties": {
                "type": one_of("json_schema"),
                "name": ANYTHING,
                "description": ANYTHING,
                "schema": JSON_SCHEMA,
                "strict": BOOLEAN,
            },
        },
    ]
}
"""Of OpenAI's responses."""
OLLAMA_FORMAT: Schema = {"oneOf": [one_of("", "json"), {"type": "object"}]}

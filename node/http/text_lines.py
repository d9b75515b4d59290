"""Framing of streams of JSON, a value a line (NDJSON), as Ollama's are."""

from __future__ import annotations

import json


def line(data: object) -> bytes:
    """One line, which has no line breaks within."""
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"

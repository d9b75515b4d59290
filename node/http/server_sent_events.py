"""Framing of server-sent events."""

from __future__ import annotations

import json

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: proxies and clients see that the connection lives."""
DONE = b"data: [DONE]\n\n"
"""How OpenAI's streams end."""


def event(data: object) -> bytes:
    """One event whose data is `data` as JSON, which has no line breaks."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"

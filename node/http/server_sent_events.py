"""Framing of server-sent events."""

from __future__ import annotations

import json
from collections.abc import Mapping

DONE = b"data: [DONE]\n\n"
"""How OpenAI's streams end."""


def comment(text: str) -> bytes:
    """A line that no client takes for an event; `text` is one line."""
    return b": " + text.encode() + b"\n\n"


KEEP_ALIVE = comment("keep-alive")
"""Proxies and clients see that the connection lives."""


def named_event(data: Mapping[str, object]) -> bytes:
    """One event that is named as its data says, by `type`."""
    return b"event: " + str(data["type"]).encode() + b"\n" + event(data)


def event(data: object) -> bytes:
    """One event whose data is `data` as JSON, which has no line breaks."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"

"""How an API speaks: what frames the chunks of its streams, and how it says errors.

A path belongs to one of them, whoever answers it: the middlewares ask too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MappingProxyType

from kakeya_fleet.node.http.answer_shape import Chunk
from kakeya_fleet.node.http.prompt_reading import PromptProgress
from kakeya_fleet.node.http.refusal import HttpRefusal
from kakeya_fleet.node.http.server_sent_events import (
    DONE,
    KEEP_ALIVE,
    comment,
    event,
    named_event,
)
from kakeya_fleet.node.http.text_lines import line

EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API's. `keep_alive` is what a silent stream says, where its shape says nothing.

    With `has_comments` it is one, and while prompts are read another says how far.
    `refused` is the body of an error and what ends a stream, given the request's id.
    """

    content_type: str
    frame: Callable[[Chunk], bytes]
    refused: Callable[[HttpRefusal, str], Chunk]
    keep_alive: bytes = KEEP_ALIVE
    has_comments: bool = True
    done: bytes = b""

    def frames(self, chunks: Iterable[Chunk]) -> bytes:
        """All of them."""
        return b"".join(map(self.frame, chunks))

    def sign_of_life(self, progress: PromptProgress | None) -> bytes:
        """What a silent stream says, whose prompts are read so far; None where nobody knows."""
        if not self.has_comments or progress is None or progress.processed == progress.total:
            return self.keep_alive
        return comment(f"prompt {progress.processed} of {progress.total} tokens")


def _of_openai(refusal: HttpRefusal, _request_id: str) -> Chunk:
    return refusal.envelope()


def _of_responses(refusal: HttpRefusal, _request_id: str) -> Chunk:
    """OpenAI's envelope, which is an event of a stream as well."""
    told = {"code": refusal.reason, "message": refusal.message, "param": refusal.parameter}
    return {"type": "error", **told, **refusal.envelope()}


_ANTHROPIC_KINDS = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        408: "timeout_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        502: "api_error",
        503: "overloaded_error",
        504: "timeout_error",
    }
)


def _of_anthropic(refusal: HttpRefusal, request_id: str) -> Chunk:
    kind = _ANTHROPIC_KINDS.get(refusal.status, "invalid_request_error")
    error = {"type": kind, "message": refusal.message, "code": refusal.reason}
    return {"type": "error", "error": error, "request_id": request_id}


def _of_ollama(refusal: HttpRefusal, _request_id: str) -> Chunk:
    return {"error": refusal.message, "code": refusal.reason}


OPENAI = Dialect(EVENTS, event, _of_openai, done=DONE)
RESPONSES = Dialect(EVENTS, named_event, _of_responses)
ANTHROPIC = Dialect(
    EVENTS,
    named_event,
    _of_anthropic,
    keep_alive=named_event({"type": "ping"}),
    has_comments=False,
)
OLLAMA = Dialect(LINES, line, _of_ollama, keep_alive=b"", has_comments=False)


def dialect_of(path: str) -> Dialect:
    """That of the API to which a path belongs; OpenAI's for what is nobody's."""
    if path.startswith("/api/"):
        return OLLAMA
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return ANTHROPIC
    return RESPONSES if path == "/v1/responses" else OPENAI

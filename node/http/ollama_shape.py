"""Answers in the shapes of Ollama's /api/chat and /api/generate."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from kakeya_fleet.node.http.answer_shape import Chunk
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.chat_request import ChatRequest
from kakeya_fleet.node.http.preparing import Prepared
from kakeya_fleet.node.http.prompt_reading import PromptProgress
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from kakeya_fleet.node.http.tool_calls import AnswerParts, ToolCall
from kakeya_fleet.node.http.usage import fleet_report

NANOSECONDS = 1e9

Say = Callable[[str, Sequence[ToolCall]], Chunk]
"""Text, and calls of tools, as an endpoint has them in a chunk."""


class OllamaShape:
    """One request's answer, a line a piece; all lines together are the whole one."""

    def __init__(self, facts: ShapeFacts, say: Say, tool_names: Sequence[str] = ()) -> None:
        self._facts = facts
        self._say = say
        self._parts = AnswerParts(tool_names)

    @classmethod
    def of_chat(cls, facts: ShapeFacts, asked: ChatRequest, prepared: Prepared) -> OllamaShape:
        """For one request of /api/chat."""
        del prepared  # Nothing of it is told.
        return cls(facts, _message, asked.tool_names)

    @classmethod
    def of_text(cls, facts: ShapeFacts) -> OllamaShape:
        """For one request of /api/generate."""
        return cls(facts, lambda text, _calls: {"response": text})

    def opening(self) -> Sequence[Chunk]:
        """Nothing."""
        return []

    def progress(self, progress: PromptProgress) -> Sequence[Chunk]:  # noqa: ARG002
        """Nothing: no client of this API can ask for it."""
        return []

    def delta(self, delta: Delta) -> Sequence[Chunk]:
        """One line with what of the piece is surely no call of a tool."""
        text = self._parts.push(delta.piece.text)
        return [self._line(text)] if text else []

    def waiting(self) -> Sequence[Chunk]:
        """A line that says nothing: lines have no comments."""
        return [self._line("")]

    def end(self, end: End) -> Sequence[Chunk]:
        """The rest of the text with the calls of tools, then why it ended."""
        rest, calls = self._parts.finish()
        chunks = [self._line(rest, calls)] if rest or calls else []
        return [*chunks, self._line("") | self._ended(end)]

    def closing(self, ends: Sequence[End]) -> Sequence[Chunk]:  # noqa: ARG002 - `end` said it
        """Nothing."""
        return []

    def whole(self, deltas: Sequence[Delta], ends: Sequence[End]) -> Chunk:
        """All in one."""
        text = "".join(self._parts.push(delta.piece.text) for delta in deltas)
        rest, calls = self._parts.finish()
        (end,) = ends
        return self._line(text + rest, calls) | self._ended(end)

    def _line(self, text: str, calls: Sequence[ToolCall] = ()) -> Chunk:
        return {
            "model": self._facts.model,
            "created_at": ollama_time(self._facts.created),
            **self._say(text, calls),
            "done": False,
        }

    def _ended(self, end: End) -> Chunk:
        """Durations are nanoseconds; of the prompt what was cached took none."""
        generating = end.done.timings.total_seconds if end.done is not None else 0.0
        return {
            "done": True,
            "done_reason": end.finish_reason,
            "total_duration": _nanoseconds(end.prefill_seconds + generating),
            "load_duration": 0,
            "prompt_eval_count": self._facts.prompt_token_count,
            "prompt_eval_duration": _nanoseconds(end.prefill_seconds),
            "eval_count": end.token_count,
            "eval_duration": _nanoseconds(generating),
            "kakeya": fleet_report([end]),
        }


def loaded(model: str, now_unix: float) -> Chunk:
    """The answer to one who only asks for the model: it is there."""
    told = {"model": model, "created_at": ollama_time(now_unix), "response": ""}
    return {**told, "done": True, "done_reason": "load"}


def ollama_time(seconds: float) -> str:
    """Seconds since 1970 as Ollama's clients read a time (RFC 3339)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def _message(text: str, calls: Sequence[ToolCall]) -> Chunk:
    message: Chunk = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}
            for call in calls
        ]
    return {"message": message}

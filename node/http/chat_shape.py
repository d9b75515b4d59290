"""Answers in the shape of /v1/chat/completions."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from kakeya_fleet.node.http.answer_shape import Chunk
from kakeya_fleet.node.http.answer_text import ScoredToken
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.prompt_reading import PromptProgress
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from kakeya_fleet.node.http.token_texts import Decode, chat_log_probabilities
from kakeya_fleet.node.http.tool_calls import AnswerParts, ToolCall
from kakeya_fleet.node.http.usage import fleet_report, usage


def new_call_id() -> str:
    """An id for a call of a tool."""
    return f"call_{secrets.token_hex(12)}"


class ChatShape:
    """One request's answers. With `tool_names` calls of these tools are read out of the text."""

    def __init__(
        self,
        facts: ShapeFacts,
        decode: Decode,
        tool_names: Sequence[str] = (),
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._facts = facts
        self._decode = decode
        self._new_id = new_id
        self._parts = [AnswerParts(tool_names) for _ in range(facts.answer_count)]

    def opening(self) -> Sequence[Chunk]:
        """A chunk an answer that names its speaker."""
        return [
            self._chunk(index, {"role": "assistant", "content": ""})
            for index in range(self._facts.answer_count)
        ]

    def progress(self, progress: PromptProgress) -> Sequence[Chunk]:
        """One chunk, which says nothing of an answer, as the server of llama.cpp has it."""
        return [self._chunk(0, {}) | {"prompt_progress": progress.told()}]

    def delta(self, delta: Delta) -> Sequence[Chunk]:
        """One chunk with what of the piece is surely no call of a tool."""
        text = self._parts[delta.index].push(delta.piece.text)
        if not text and not delta.piece.tokens:
            return []
        return [self._chunk(delta.index, {"content": text}, tokens=delta.piece.tokens)]

    def waiting(self) -> Sequence[Chunk]:
        """Nothing."""
        return []

    def end(self, end: End) -> Sequence[Chunk]:
        """The rest of the text, the calls of tools, and why it ended."""
        chunks: list[Chunk] = []
        rest, calls = self._parts[end.index].finish()
        if rest:
            chunks.append(self._chunk(end.index, {"content": rest}))
        if calls:
            numbered = [{"index": place, **self._call(call)} for place, call in enumerate(calls)]
            chunks.append(self._chunk(end.index, {"tool_calls": numbered}))
        last = self._chunk(end.index, {}, finish_reason=_reason(end, calls))
        chunks.append(last | {"kakeya": fleet_report([end])})
        return chunks

    def closing(self, ends: Sequence[End]) -> Sequence[Chunk]:
        """The usage, when it was asked for."""
        if not self._facts.include_usage:
            return []
        counted = usage(self._facts.prompt_token_count, ends)
        return [self._head("chat.completion.chunk") | {"choices": [], "usage": counted}]

    def whole(self, deltas: Sequence[Delta], ends: Sequence[End]) -> Chunk:
        """The body of all answers."""
        choices: list[Chunk] = []
        for end in ends:
            own = [delta for delta in deltas if delta.index == end.index]
            parts = self._parts[end.index]
            text = "".join(parts.push(delta.piece.text) for delta in own)
            rest, calls = parts.finish()
            tokens = [token for delta in own for token in delta.piece.tokens]
            choices.append(self._choice(end, text + rest, calls, tokens))
        return self._head("chat.completion") | {
            "choices": choices,
            "usage": usage(self._facts.prompt_token_count, ends),
            "kakeya": fleet_report(ends),
        }

    def _choice(
        self,
        end: End,
        text: str,
        calls: Sequence[ToolCall],
        tokens: Sequence[ScoredToken],
    ) -> Chunk:
        message: Chunk = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text or None
            message["tool_calls"] = [self._call(call) for call in calls]
        scored = chat_log_probabilities(tokens, self._decode) if self._facts.scored else None
        return {
            "index": end.index,
            "message": message,
            "logprobs": scored,
            "finish_reason": _reason(end, calls),
        }

    def _call(self, call: ToolCall) -> Chunk:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": self._new_id(), "type": "function", "function": function}

    def _chunk(
        self,
        index: int,
        delta: Mapping[str, object],
        *,
        finish_reason: str | None = None,
        tokens: Sequence[ScoredToken] = (),
    ) -> Chunk:
        choice = {
            "index": index,
            "delta": dict(delta),
            "logprobs": chat_log_probabilities(tokens, self._decode) if tokens else None,
            "finish_reason": finish_reason,
        }
        chunk = self._head("chat.completion.chunk") | {"choices": [choice]}
        return chunk | {"usage": None} if self._facts.include_usage else chunk

    def _head(self, kind: str) -> Chunk:
        return self._facts.head("chatcmpl", kind)


def _reason(end: End, calls: Sequence[ToolCall]) -> str:
    return "tool_calls" if calls else end.finish_reason

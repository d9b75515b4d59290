"""Answers in the shape of Anthropic's /v1/messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence

from kakeya_fleet.node.http.answer_shape import Chunk
from kakeya_fleet.node.http.answering import Delta, End
from kakeya_fleet.node.http.chat_request import ChatRequest
from kakeya_fleet.node.http.preparing import Prepared
from kakeya_fleet.node.http.prompt_reading import PromptProgress
from kakeya_fleet.node.http.shape_facts import ShapeFacts
from kakeya_fleet.node.http.tool_calls import AnswerParts, ToolCall
from kakeya_fleet.node.http.usage import fleet_report


def new_use_id() -> str:
    """An id for a use of a tool."""
    return f"toolu_{secrets.token_hex(12)}"


class MessageShape:
    """One request's answer: a message of blocks of text and of uses of tools."""

    def __init__(
        self,
        facts: ShapeFacts,
        tool_names: Sequence[str] = (),
        new_id: Callable[[], str] = new_use_id,
    ) -> None:
        self._facts = facts
        self._new_id = new_id
        self._parts = AnswerParts(tool_names)
        self._blocks = 0
        self._has_text = False

    @classmethod
    def of(cls, facts: ShapeFacts, asked: ChatRequest, prepared: Prepared) -> MessageShape:
        """For one request."""
        del prepared  # Nothing of it is told.
        return cls(facts, asked.tool_names)

    def opening(self) -> Sequence[Chunk]:
        """A message without content."""
        usage = self._usage(())
        return [{"type": "message_start", "message": self._message([], None, usage)}]

    def progress(self, progress: PromptProgress) -> Sequence[Chunk]:  # noqa: ARG002
        """Nothing: no client of this API can ask for it."""
        return []

    def delta(self, delta: Delta) -> Sequence[Chunk]:
        """What of the piece is surely no use of a tool."""
        return self._said(self._parts.push(delta.piece.text))

    def waiting(self) -> Sequence[Chunk]:
        """Nothing: the dialect pings."""
        return []

    def end(self, end: End) -> Sequence[Chunk]:
        """The rest of the text, the uses of tools, and why it ended."""
        rest, calls = self._parts.finish()
        chunks = [*self._said(rest)]
        if self._has_text:
            chunks.append({"type": "content_block_stop", "index": self._blocks - 1})
        for call in calls:
            index, self._blocks = self._blocks, self._blocks + 1
            begun = self._use(call) | {"input": {}}
            partial = {"type": "input_json_delta", "partial_json": call.arguments}
            chunks += [
                {"type": "content_block_start", "index": index, "content_block": begun},
                {"type": "content_block_delta", "index": index, "delta": partial},
                {"type": "content_block_stop", "index": index},
            ]
        stopped = {"stop_reason": _reason(end, calls), "stop_sequence": end.stop_string}
        chunks.append({"type": "message_delta", "delta": stopped, "usage": self._usage((end,))})
        return chunks

    def closing(self, ends: Sequence[End]) -> Sequence[Chunk]:
        """The end, with what the fleet did."""
        return [{"type": "message_stop", "kakeya": fleet_report(ends)}]

    def whole(self, deltas: Sequence[Delta], ends: Sequence[End]) -> Chunk:
        """The whole message."""
        text = "".join(self._parts.push(delta.piece.text) for delta in deltas)
        rest, calls = self._parts.finish()
        blocks: list[Chunk] = []
        if text + rest:
            blocks.append({"type": "text", "text": text + rest})
        blocks.extend(self._use(call) for call in calls)
        (end,) = ends
        message = self._message(blocks, _reason(end, calls), self._usage(ends))
        return message | {"stop_sequence": end.stop_string, "kakeya": fleet_report(ends)}

    def _said(self, text: str) -> Sequence[Chunk]:
        if not text:
            return []
        chunks: list[Chunk] = []
        if not self._has_text:
            self._has_text = True
            begun = {"type": "text", "text": ""}
            chunks.append(
                {"type": "content_block_start", "index": self._blocks, "content_block": begun}
            )
            self._blocks += 1
        said = {"type": "text_delta", "text": text}
        chunks.append({"type": "content_block_delta", "index": self._blocks - 1, "delta": said})
        return chunks

    def _use(self, call: ToolCall) -> Chunk:
        arguments = json.loads(call.arguments)
        return {"type": "tool_use", "id": self._new_id(), "name": call.name, "input": arguments}

    def _message(self, blocks: Sequence[Chunk], reason: str | None, usage: Chunk) -> Chunk:
        return {
            "id": f"msg_{self._facts.identity}",
            "type": "message",
            "role": "assistant",
            "model": self._facts.model,
            "content": list(blocks),
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _usage(self, ends: Sequence[End]) -> Chunk:
        """Input tokens are those that were not cached; of the cache none is paid for."""
        cached = sum(end.cached_count for end in ends)
        return {
            "input_tokens": self._facts.prompt_token_count - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": sum(end.token_count for end in ends),
        }


def _reason(end: End, calls: Sequence[ToolCall]) -> str:
    if calls:
        return "tool_use"
    if end.stop_string is not None:
        return "stop_sequence"
    return "max_tokens" if end.finish_reason == "length" else "end_turn"

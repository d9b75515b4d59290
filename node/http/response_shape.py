"""Answers in the shape of OpenAI's /v1/responses."""

from __future__ import annotations

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


def new_item_id() -> str:
    """The end of an id of an item of an answer."""
    return secrets.token_hex(12)


class ResponseShape:
    """One request's answer: a message, then the calls of functions, numbered in its stream."""

    def __init__(
        self,
        facts: ShapeFacts,
        asked: ChatRequest,
        max_tokens: int,
        new_id: Callable[[], str] = new_item_id,
    ) -> None:
        """The answer has `max_tokens` at most."""
        self._facts = facts
        self._asked = asked
        self._max_tokens = max_tokens
        self._new_id = new_id
        self._parts = AnswerParts(asked.tool_names)
        self._message_id = f"msg_{new_id()}"
        self._text = ""
        self._items: list[Chunk] = []
        self._number = 0

    @classmethod
    def of(cls, facts: ShapeFacts, asked: ChatRequest, prepared: Prepared) -> ResponseShape:
        """For one request."""
        return cls(facts, asked, prepared.work.max_tokens)

    def opening(self) -> Sequence[Chunk]:
        """A response in progress."""
        body = self._body("in_progress")
        return [
            self._event("response.created", response=body),
            self._event("response.in_progress", response=body),
        ]

    def progress(self, progress: PromptProgress) -> Sequence[Chunk]:  # noqa: ARG002
        """Nothing: no client of this API can ask for it."""
        return []

    def delta(self, delta: Delta) -> Sequence[Chunk]:
        """What of the piece is surely no call of a function."""
        return self._said(self._parts.push(delta.piece.text))

    def waiting(self) -> Sequence[Chunk]:
        """Nothing."""
        return []

    def end(self, end: End) -> Sequence[Chunk]:  # noqa: ARG002 - `closing` says why
        """The rest of the text, and the calls of functions."""
        rest, calls = self._parts.finish()
        chunks = [*self._said(rest)]
        if self._text:
            item = self._message("completed")
            place = {**self._place(), "content_index": 0}
            chunks += [
                self._event("response.output_text.done", **place, text=self._text, logprobs=[]),
                self._event("response.content_part.done", **place, part=_part(self._text)),
                self._event("response.output_item.done", output_index=0, item=item),
            ]
            self._items.append(item)
        for call in calls:
            chunks += self._called(call)
        return chunks

    def closing(self, ends: Sequence[End]) -> Sequence[Chunk]:
        """The whole response."""
        body = self._ended(ends)
        return [self._event(f"response.{body['status']}", response=body)]

    def whole(self, deltas: Sequence[Delta], ends: Sequence[End]) -> Chunk:
        """The whole response."""
        self._text = "".join(self._parts.push(delta.piece.text) for delta in deltas)
        rest, calls = self._parts.finish()
        self._text += rest
        if self._text:
            self._items.append(self._message("completed"))
        self._items.extend(self._call(call, "completed") for call in calls)
        return self._ended(ends)

    def _said(self, text: str) -> Sequence[Chunk]:
        if not text:
            return []
        chunks: list[Chunk] = []
        if not self._text:
            item = self._message("in_progress") | {"content": []}
            added = self._event("response.output_item.added", output_index=0, item=item)
            place = {**self._place(), "content_index": 0}
            chunks += [added, self._event("response.content_part.added", **place, part=_part(""))]
        self._text += text
        place = {**self._place(), "content_index": 0}
        chunks.append(self._event("response.output_text.delta", **place, delta=text, logprobs=[]))
        return chunks

    def _called(self, call: ToolCall) -> Sequence[Chunk]:
        index = len(self._items)
        item = self._call(call, "completed")
        place = {"item_id": item["id"], "output_index": index}
        begun = item | {"status": "in_progress", "arguments": ""}
        self._items.append(item)
        arguments = call.arguments
        return [
            self._event("response.output_item.added", output_index=index, item=begun),
            self._event("response.function_call_arguments.delta", **place, delta=arguments),
            self._event(
                "response.function_call_arguments.done",
                **place,
                name=call.name,
                arguments=arguments,
            ),
            self._event("response.output_item.done", output_index=index, item=item),
        ]

    def _event(self, kind: str, **fields: object) -> Chunk:
        number, self._number = self._number, self._number + 1
        return {"type": kind, "sequence_number": number, **fields}

    def _place(self) -> Chunk:
        return {"item_id": self._message_id, "output_index": 0}

    def _message(self, status: str) -> Chunk:
        return {
            "id": self._message_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [_part(self._text)],
        }

    def _call(self, call: ToolCall, status: str) -> Chunk:
        return {
            "id": f"fc_{self._new_id()}",
            "type": "function_call",
            "status": status,
            "call_id": f"call_{self._new_id()}",
            "name": call.name,
            "arguments": call.arguments,
        }

    def _ended(self, ends: Sequence[End]) -> Chunk:
        (end,) = ends
        is_whole = end.finish_reason != "length"
        body = self._body("completed" if is_whole else "incomplete", self._usage(end))
        if not is_whole:
            body["incomplete_details"] = {"reason": "max_output_tokens"}
        return body | {"output": self._items, "kakeya": fleet_report(ends)}

    def _usage(self, end: End) -> Chunk:
        return {
            "input_tokens": self._facts.prompt_token_count,
            "input_tokens_details": {"cached_tokens": end.cached_count},
            "output_tokens": end.token_count,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._facts.prompt_token_count + end.token_count,
        }

    def _body(self, status: str, usage: Chunk | None = None) -> Chunk:
        options, held = self._asked.options, self._asked.held
        tools = [_function(each["function"]) for each in self._asked.tools]
        strict = held.strict if held is not None else frozenset()
        return {
            "id": f"resp_{self._facts.identity}",
            "object": "response",
            "created_at": self._facts.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": self._max_tokens,
            "metadata": {},
            "model": self._facts.model,
            "output": [],
            "parallel_tool_calls": held is None or not held.is_one,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            # Nothing of it can be asked for again.
            "store": False,
            "temperature": options.sampling.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "required" if held is not None and held.must_call else "auto",
            "tools": [
                {"type": "function", "strict": each["name"] in strict, **each} for each in tools
            ],
            "top_p": options.sampling.top_p,
            "truncation": "disabled",
            "usage": usage,
        }


def _part(text: str) -> Chunk:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _function(value: object) -> Chunk:
    return dict(value) if isinstance(value, dict) else {}

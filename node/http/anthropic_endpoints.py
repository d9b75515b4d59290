"""The handlers of Anthropic's shapes: /v1/messages."""

from __future__ import annotations

from aiohttp import web

from kakeya_fleet.node.http.answer_desk import AnswerDesk
from kakeya_fleet.node.http.message_request import read_messages, read_messages_to_count
from kakeya_fleet.node.http.message_shape import MessageShape
from kakeya_fleet.node.http.preparing import prepare_chat


class AnthropicEndpoints:
    """Handlers of one node."""

    def __init__(self, desk: AnswerDesk) -> None:
        self._desk = desk

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages."""
        return await self._desk.answer_chat(request, read_messages, MessageShape.of)

    async def count_tokens(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages/count_tokens."""
        async with self._desk.asked(request, read_messages_to_count) as asked:
            prepared = await prepare_chat(asked, self._desk.models)
            return web.json_response({"input_tokens": prepared.work.prompt_token_count})

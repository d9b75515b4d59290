"""A stream that is ended in the very moment in which its call ends by itself."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc.aio
import pytest

from kakeya_fleet.node.links.transport.grpc_streams import CallerStream


class EndingCall:
    """Fails as gRPC does there: by one of several errors, of which one is its own."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    async def done_writing(self) -> None:
        self.asked += 1
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        grpc.aio.InternalError("execute_batch"),
        grpc.aio.UsageError("over"),
        asyncio.InvalidStateError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_closing_a_stream_whose_call_has_ended_raises_nothing(error: Exception) -> None:
    call = EndingCall(error)
    await CallerStream(cast(Any, call)).close()
    assert call.asked == 1

"""Errors are answered to those who are still there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kakeya_fleet.engine.errors import SessionNotFound
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from tests.node.conftest import ValueOf


class LeavingCaller:
    """gRPC's context of a caller of whose leaving it hears in the loop's next turn."""

    def __init__(self) -> None:
        self.has_left = False
        self.answered = False
        asyncio.get_running_loop().call_soon(self._leave)

    def done(self) -> bool:
        return self.has_left

    async def abort(self, *_: object) -> None:
        self.answered = True

    def _leave(self) -> None:
        self.has_left = True


async def test_who_has_left_before_the_loops_next_turn_is_not_answered(
    metrics: NodeMetrics, value_of: ValueOf
) -> None:
    error = SessionNotFound("none", session_id="x")
    context: Any = LeavingCaller()
    with pytest.raises(SessionNotFound):
        await ErrorInterceptor(metrics)._end(error, "/kakeya.v1.RuntimeService/Generate", context)
    assert not context.answered
    assert value_of("kakeya_rpc_errors_total", reason="SESSION_NOT_FOUND") == 0

"""Waiting for a proposer that was asked for by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kakeya import NoPlacement

Given = TypeVar("Given")


async def when_it_can_be_had(work: Callable[[], Awaitable[Given]]) -> Given:
    """What it gives; a busy machine's proposer may be suspect, or its breaker open, for a while."""
    async with asyncio.timeout(30.0):
        while True:
            try:
                return await work()
            except NoPlacement:
                await asyncio.sleep(0.1)

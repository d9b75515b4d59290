"""Calls whose channel is closed under them, by this node itself.

Channels are opened anew with new certificates, by another way, and where a node has moved or left.
gRPC then ends the calls as if their task were cancelled.
"""

from __future__ import annotations

import asyncio


def closed_under_call() -> bool:
    """Asked where `CancelledError` is caught: whether that was the channel, and not the task."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()

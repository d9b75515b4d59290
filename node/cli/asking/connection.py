"""From a command to a node, and back with an answer or a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from kakeya import AsyncClient
from kakeya_fleet.node.cli.asking.access import client_of
from kakeya_fleet.node.cli.asking.asked_node import asked_address
from kakeya_fleet.node.cli.asking.failures import told_as_failures
from kakeya_fleet.node.cli.asking.interruption import run_interruptible

Result = TypeVar("Result")


def ask(
    node: str | None,
    work: Callable[[AsyncClient], Awaitable[Result]],
    *,
    farewell: Callable[[], None] | None = None,
) -> Result:
    """Runs `work` with a client of the node, its address or name; `None` for one here.

    `farewell` is called before Ctrl-C ends the process without waiting for `work`.
    Raises `CommandFailed` for every error of the fleet, KeyboardInterrupt on
    Ctrl-C.
    """
    address = asked_address(node)

    async def session() -> Result:
        async with client_of(address) as client:
            return await work(client)

    with told_as_failures():
        return run_interruptible(session(), farewell)

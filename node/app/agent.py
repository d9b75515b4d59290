"""The agent: a process that is one node, and ends as it is told by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NoReturn

from kakeya_fleet.engine.memory.system_memory import bound_arenas
from kakeya_fleet.node.admission.file_limit import raise_file_limit
from kakeya_fleet.node.admission.limits import FileLimits
from kakeya_fleet.node.app.composition import open_node
from kakeya_fleet.node.app.node import Node
from kakeya_fleet.node.config.config import Config
from kakeya_fleet.node.config.log import configure_log
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.membership.fleet_changes import EventSink
from kakeya_fleet.node.roles.cycles import set_aside
from kakeya_fleet.node.watch.activity import NodeActivity

# Before a process that is asked to end while it loads ends.
HURRY_SECONDS = 0.4
# Models compute in threads that need the interpreter for a moment some ten times a forward. While
# the event loop is busy, each time waits for so long at most; CPython's own 5 ms made 10,000
# refused callers cost those who were let in 112 ms between two tokens (p99). With a third of this
# the loop answers 216 of 300 callers a second that it is asked to.
SWITCH_SECONDS = 0.0003


async def run_agent(
    config: Config,
    *,
    on_event: EventSink,
    activity: NodeActivity | None = None,
    state: StateDirectory | None = None,
) -> int:
    """Runs a node until SIGTERM, SIGINT or Leave.

    A second signal, or one while models are loaded, ends the process at once.

    The first event is "joined" when models are to be loaded, and "ready" when all are.
    `activity` is where the node notes what it does, downloads and loads with their progress
    too, for one who looks at it from within the process. `state` is the configured state
    directory where the caller opened it; the agent closes it. Returns the exit status. Raises
    `NodeError`, `engine.errors.ModelUnusable` and the refusals of roles, each a
    sentence for people.
    """
    bound_arenas()
    # What is loaded from now on is set aside as it comes: the collector never sees it.
    set_aside()
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_file_limit(FileLimits().descriptors)
    state = state if state is not None else StateDirectory(config.state_path)
    with _log_of(config):
        return await _run(config, on_event, activity, state)


async def _run(
    config: Config, on_event: EventSink, activity: NodeActivity | None, state: StateDirectory
) -> int:
    abandon = partial(_abandon, state)
    handlers: list[Callable[[int], None]] = [abandon]

    def on_signal(number: int) -> None:
        handlers[-1](number)

    with _on_signals(on_signal):
        async with open_node(config, on_event, activity, state) as node:
            handlers.append(_Ending(node, abandon))
            await node.serve()
    return 0


@contextmanager
def _log_of(config: Config) -> Iterator[None]:
    """Sets up the process's log; its file, if there is one, has every line at the end."""
    with ExitStack() as stack:
        file = None
        if config.log_path is not None:
            from kakeya_fleet.node.config.log_file import LogFile  # noqa: PLC0415 - for few

            file = LogFile(config.log_path, config.log_file_bytes, config.log_file_count)
            stack.callback(file.close)
        configure_log(config.log_level, config.log_format, node_name=config.name, file=file)
        yield


class _Ending:
    """What a signal does to a node: the first has it leave, unless it loads, the second ends it."""

    def __init__(self, node: Node, abandon: Callable[[int], NoReturn]) -> None:
        self._node = node
        self._abandon = abandon
        self._hurries: list[asyncio.Task[None]] = []

    def __call__(self, number: int) -> None:
        if self._node.is_leaving or self._hurries:
            self._abandon(number)
        if self._node.is_loaded:
            self._node.leave()
        else:
            # Loading a model cannot be interrupted.
            self._hurries.append(asyncio.create_task(self._hurry(number)))

    async def _hurry(self, number: int) -> None:
        """Ends the process in half a second at most, once peers heard that the node leaves."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HURRY_SECONDS):
                await self._node.say_farewell()
        self._abandon(number)


@contextmanager
def _on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Calls `handle` with the number of each SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _abandon(state: StateDirectory, number: int) -> NoReturn:
    """Ends the process at once; local tools do not find the node any more."""
    state.close()
    os._exit(128 + number)

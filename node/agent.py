"""The agent: starts a node in order, and hands it the wish to leave."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import structlog

from engine.model_folder import Progress
from node.archive.session_restorers import RestorerSettings
from node.config import Config, is_loopback
from node.groups.group_settings import GroupLimits, GroupSource
from node.log import configure_log
from node.machine import memory_free_bytes
from node.membership.fleet_changes import EventSink
from node.membership.identity import load_or_create
from node.metrics import NodeMetrics
from node.roles import Roles, RoleSettings
from node.rpc.error_interceptor import ErrorInterceptor
from node.rpc.listening import listen, make_server
from node.running_node import NodeParts, RunningNode
from node.state_directory import StateDirectory

_log = structlog.get_logger(__name__)


async def run_agent(
    config: Config, *, on_event: EventSink, on_progress: Progress | None = None
) -> int:
    """Runs a node until SIGTERM, SIGINT or Leave.

    A second signal, or one while models are loaded, ends the process at once.

    The first event is "ready"; before it `on_progress` hears of (done bytes,
    total bytes) of downloads, from any thread. Returns the exit status. Raises `NodeError`,
    `engine.errors.ModelUnusable` and the refusals of `node.roles`, each a
    sentence for people.
    """
    configure_log(config.log_level, config.log_format, node_name=config.name)
    agent = Agent(config, on_event, on_progress)
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        # Loading a model cannot be interrupted, and nobody knows of the node yet.
        if agent.is_leaving or not agent.is_serving:
            agent.abandon(128 + number)
        agent.leave(config.drain_seconds)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        await agent.run()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return 0


class Agent:
    """One node. `run` once; `leave` from the same event loop."""

    def __init__(
        self, config: Config, on_event: EventSink, on_progress: Progress | None = None
    ) -> None:
        self._config = config
        self._on_event = on_event
        self._on_progress = on_progress
        self._leaving = asyncio.Event()
        self._drain_seconds = config.drain_seconds
        self._is_serving = False
        self._state: StateDirectory | None = None

    @property
    def is_serving(self) -> bool:
        """Whether the models are loaded, so that the node has something to leave."""
        return self._is_serving

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self._leaving.is_set()

    def leave(self, drain_seconds: float) -> None:
        """Starts the drain; running generations get `drain_seconds`, 0 for the configured."""
        if not self._leaving.is_set():
            self._drain_seconds = drain_seconds or self._config.drain_seconds
            self._leaving.set()

    def abandon(self, status: int) -> NoReturn:
        """Ends the process at once; local tools do not find the node any more."""
        if self._state is not None:
            self._state.close()
        os._exit(status)

    async def run(self) -> None:
        """Serves until it has left. Raises `NodeError` and the errors of loading models."""
        async with AsyncExitStack() as stack:
            state = StateDirectory(self._config.state_path)
            self._state = state
            stack.callback(state.close)
            identity = load_or_create(state.identity_file)
            incarnation = state.raise_incarnation()
            metrics = NodeMetrics()
            metrics.incarnation.set(incarnation)
            roles = Roles(_role_settings(self._config), metrics)
            stack.push_async_callback(roles.close)
            server = make_server(ErrorInterceptor(metrics))
            stack.push_async_callback(server.stop, None)
            host, port = self._config.bind_address
            port = listen(server, host, port, state.last_port())
            self._warn_if_exposed(host)
            if await self._loaded(roles):
                self._is_serving = True
                parts = NodeParts(self._config, state, identity, metrics, roles, server)
                node = RunningNode(parts, self._on_event, leave=self.leave)
                await node.serve(incarnation, port, until=self._until_leaving)

    async def _until_leaving(self) -> float:
        await self._leaving.wait()
        return self._drain_seconds

    async def _loaded(self, roles: Roles) -> bool:
        """Loads the roles; False when the node was asked to leave meanwhile."""
        if self._config.serve:
            _log.info("loading", serve=self._config.serve)
        loading = asyncio.ensure_future(roles.load(self._config.serve, progress=self._on_progress))
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait({loading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                return False
            loading.result()
            return True
        finally:
            loading.cancel()
            leaving.cancel()

    def _warn_if_exposed(self, host: str) -> None:
        if not is_loopback(host):
            _log.warning(
                "insecure",
                bind=self._config.bind,
                danger="everyone on this network can use this node, read every session's tokens "
                "and pose as a member; nothing is encrypted or authenticated",
            )


def _group(config: Config) -> GroupSource | None:
    if not config.group:
        return None
    return GroupSource(
        Path(config.group).expanduser(),
        host=config.bind_address[0],
        limits=GroupLimits(silence_seconds=config.group_deadline_seconds),
    )


def _role_settings(config: Config) -> RoleSettings:
    return RoleSettings(
        kv_budget_bytes=config.kv_budget_bytes or memory_free_bytes() // 4,
        session_ttl_seconds=config.session_ttl_seconds,
        draft_deadline_seconds=config.draft_deadline_seconds,
        dtype=config.dtype,
        backend=config.backend,
        links=config.links,
        host=config.bind_address[0],
        group=_group(config),
        restorers=RestorerSettings(
            deadline=config.archive_deadline_seconds,
            rebuild=config.restorer_wait_seconds,
            lease=2 * config.session_ttl_seconds,
        ),
    )

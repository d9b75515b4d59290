"""The agent: starts a node in order, and hands it the wish to leave."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import structlog

from kakeya_fleet.node.app.roles import Roles, RoleSettings
from kakeya_fleet.node.app.running_node import RunningNode
from kakeya_fleet.node.app.wiring import NodeParts
from kakeya_fleet.node.config.config import Config, is_loopback, join_address
from kakeya_fleet.node.config.log import configure_log
from kakeya_fleet.node.config.machine import memory_free_bytes, process_started_at
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.http.server import HttpServer, HttpSettings
from kakeya_fleet.node.membership.fleet_changes import EventSink
from kakeya_fleet.node.membership.identity import load_or_create
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.session_restorers import RestorerSettings
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.verifier.observer import SessionObserver
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.listening import listen, make_server
from kakeya_fleet.node.tracing.starting import Traces, start_traces
from kakeya_fleet.node.watch.doings import Doings

# Before a process that is asked to end while it loads ends.
HURRY_SECONDS = 0.4

_log = structlog.get_logger(__name__)


async def run_agent(
    config: Config,
    *,
    on_event: EventSink,
    doings: Doings | None = None,
    state: StateDirectory | None = None,
) -> int:
    """Runs a node until SIGTERM, SIGINT or Leave.

    A second signal, or one while models are loaded, ends the process at once.

    The first event is "joined" when models are to be loaded, and "ready" when all are.
    `doings` is where the node notes what it does, downloads and loads with their progress
    too, for one who looks at it from within the process. `state` is the configured state
    directory where the caller opened it; the agent closes it. Returns the exit status. Raises
    `NodeError`, `engine.errors.ModelUnusable` and the refusals of `node.app.roles`, each a
    sentence for people.
    """
    configure_log(config.log_level, config.log_format, node_name=config.name)
    agent = Agent(config, on_event, doings, state)
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if agent.is_leaving:
            agent.abandon(128 + number)
        if agent.is_serving:
            agent.leave(config.drain_seconds)
        else:
            # Loading a model cannot be interrupted.
            agent.hurry(128 + number)

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
        self,
        config: Config,
        on_event: EventSink,
        doings: Doings | None = None,
        state: StateDirectory | None = None,
    ) -> None:
        self._config = config
        self._doings = doings or Doings()
        self._on_event = on_event
        self._leaving = asyncio.Event()
        self._drain_seconds = config.drain_seconds
        self._node: RunningNode | None = None
        self._state = state
        self._hurrying: asyncio.Future[None] | None = None

    @property
    def is_serving(self) -> bool:
        """Whether the models are loaded, so that the node has something to drain."""
        return self._node is not None and self._node.is_loaded

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self._leaving.is_set() or self._hurrying is not None

    def leave(self, drain_seconds: float) -> None:
        """Starts the drain; running generations get `drain_seconds`, 0 for the configured."""
        if not self._leaving.is_set():
            self._drain_seconds = drain_seconds or self._config.drain_seconds
            self._leaving.set()

    def hurry(self, status: int) -> None:
        """Ends the process in half a second at most, once peers heard that the node leaves."""
        self._hurrying = asyncio.ensure_future(self._hurry(status))

    async def _hurry(self, status: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(HURRY_SECONDS):
                if self._node is not None:
                    await self._node.say_farewell()
        self.abandon(status)

    def abandon(self, status: int) -> NoReturn:
        """Ends the process at once; local tools do not find the node any more."""
        if self._state is not None:
            self._state.close()
        os._exit(status)

    async def run(self) -> None:
        """Serves until it has left. Raises `NodeError` and the errors of loading models."""
        async with AsyncExitStack() as stack:
            state = self._state or StateDirectory(self._config.state_path)
            self._state = state
            stack.callback(state.close)
            identity = load_or_create(state.identity_file)
            incarnation = state.raise_incarnation()
            started = process_started_at()
            state.announce_start(self._config.name, started)
            metrics = NodeMetrics()
            metrics.incarnation.set(incarnation)
            http = _http_server(self._config, state, metrics)
            observers: list[SessionObserver] = [http.recent] if http else []
            traces = _traces(self._config, identity.node_id, metrics)
            if traces is not None:
                stack.push_async_callback(traces.close)
                observers.append(traces.observer)
            doings = self._doings
            roles = Roles(_role_settings(self._config), metrics, observers, doings)
            roles.expect(self._config.serve)
            stack.push_async_callback(roles.close)
            callers = (traces.interceptor,) if traces is not None else ()
            server = make_server(*callers, ErrorInterceptor(metrics))
            stack.push_async_callback(server.stop, None)
            host, port = self._config.bind_address
            port = listen(server, host, port, state.last_port())
            address = join_address(addresses_of(host)[0], port)
            state.announce_start(self._config.name, started, address)
            if http is not None:
                stack.push_async_callback(http.close)
                await http.start()
            self._warn_if_exposed()
            if self._config.serve:
                _log.info("loading", serve=self._config.serve)
            await roles.expected.prepare()
            parts = NodeParts(
                self._config,
                state,
                identity,
                metrics,
                roles,
                server,
                doings,
                partial(self._load, roles),
                http,
            )
            self._node = RunningNode(parts, self._on_event, leave=self.leave)
            await self._node.serve(incarnation, port, until=self._until_leaving)

    async def _until_leaving(self) -> float:
        await self._leaving.wait()
        return self._drain_seconds

    async def _load(self, roles: Roles) -> None:
        await roles.load(self._config.serve)

    def _warn_if_exposed(self) -> None:
        config = self._config
        if not is_loopback(config.bind_address[0]):
            _log.warning(
                "insecure",
                bind=config.bind,
                danger="everyone on this network can use this node, read every session's tokens "
                "and pose as a member; nothing is encrypted or authenticated",
            )
        if config.http_address is not None and not is_loopback(config.http_address[0]):
            _log.warning(
                "insecure",
                http_bind=config.http_bind,
                danger="everyone on this network can use the fleet's models through this node; "
                "nothing is encrypted or authenticated",
            )


def _http_server(config: Config, state: StateDirectory, metrics: NodeMetrics) -> HttpServer | None:
    address = config.http_address
    if address is None:
        return None
    return HttpServer(
        HttpSettings(*address, last_port=state.last_http_port(), names=config.http_hosts), metrics
    )


def _traces(config: Config, node_id: str, metrics: NodeMetrics) -> Traces | None:
    """The traces of the node's sessions; None when they are off. Raises `TracesExtraMissing`."""
    if not config.traces_endpoint:
        return None
    resource = {
        "service.name": "kakeya-node",
        "service.namespace": config.fleet_name,
        "service.instance.id": node_id,
        "host.name": config.name,
    }
    return start_traces(config.traces_endpoint, resource, metrics)


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

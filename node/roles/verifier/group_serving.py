"""Keeps a group's verifier served: started, lost with its sessions, and started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping
from dataclasses import replace

import structlog

from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.node.roles.groups.group_settings import GroupSettings
from kakeya_fleet.node.roles.groups.running_group import RunningGroup
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.verifier.verifier_loading import Admission, serve_verifier
from kakeya_fleet.node.roles.worker import ModelWorker

_log = structlog.get_logger(__name__)


class ServedGroup:
    """The verifier of one hostfile. Belongs to the event loop's thread."""

    def __init__(
        self,
        settings: GroupSettings,
        admission: Admission,
        *,
        verifiers: MutableMapping[str, ServedVerifier],
        on_change: Callable[[], None],
        events: SessionEvents,
    ) -> None:
        """Puts the verifier into `verifiers` while it is served; `on_change` hears of it."""
        self._settings = settings
        self._admission = admission
        self._verifiers = verifiers
        self._on_change = on_change
        self._events = events
        self._lost = asyncio.Event()
        self._running: RunningGroup | None = None
        self._served: ServedVerifier | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Starts the group, and again whenever it is lost; its model id. Raises as `start`."""
        model_id = await self.start()
        self._tasks.add(asyncio.create_task(self.run(), name="group-keep"))
        return model_id

    async def start(self) -> str:
        """Starts the group, measures and serves its verifier; its model id.

        Raises `NodeError`, and what the ranks raise for the model, with nothing
        left of them.
        """
        loop = asyncio.get_running_loop()
        self._lost = lost = asyncio.Event()

        def on_lost(_reason: str) -> None:
            loop.call_soon_threadsafe(lost.set)

        running = RunningGroup(self._settings, on_lost)
        self._running = running
        worker = ModelWorker(f"group-{self._settings.model}", self._admission.on_fault)
        try:
            verifier = await asyncio.wrap_future(running.ready)
            served = await serve_verifier(verifier, worker, self._admission)
        except BaseException:
            await asyncio.to_thread(running.close)
            await worker.close()
            raise
        count = verifier.rank_count
        self._served = replace(
            served,
            offer=replace(served.offer, rank_count=count),
            source=self._settings.model,
        )
        model_id = served.offer.model_id
        self._verifiers[model_id] = self._served
        _log.info("group_serves", model=model_id, ranks=count, exact=served.offer.exact)
        self._events.group_ready(model_id, count)
        self._on_change()
        return model_id

    async def run(self) -> None:
        """Starts the group again whenever it is lost, until cancelled."""
        limits = self._settings.limits
        losses = 0
        while True:
            began = time.monotonic()
            await self._lost.wait()
            await self._give_up()
            stood = time.monotonic() - began > limits.steady_seconds
            losses = 1 if stood else losses + 1
            await asyncio.sleep(limits.again.pause(losses))
            try:
                await self.start()
            except Exception as error:  # noqa: BLE001 a group costs its sessions, never the node
                reason = getattr(error, "reason", type(error).__name__)
                pause = limits.again.pause(losses + 1)
                _log.warning("group_not_started", reason=reason, cause=str(error), again_in=pause)
                self._events.group_not_started(self._settings.model, str(error), pause)
                # So that the next round does not wait for what was never there.
                self._lost.set()

    async def close(self) -> None:
        """Ends the group and its verifier's thread."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._end()

    async def _give_up(self) -> None:
        """Ends every session of a lost group, by name, and takes the model off the card."""
        served = self._served
        if served is not None:
            del self._verifiers[served.offer.model_id]
            session_count = self._admission.registry.end_verifier(served.budget, EndReason.GROUP)
            self._events.group_lost(served.offer.model_id, session_count)
            self._on_change()
        await self._end()

    async def _end(self) -> None:
        running, self._running = self._running, None
        served, self._served = self._served, None
        if running is not None:
            await asyncio.to_thread(running.close)
        if served is not None:
            await served.worker.close()

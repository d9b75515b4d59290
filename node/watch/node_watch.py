"""What a node does, live: samples, events, transfers and the node itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.event_log import NodeEvent
from kakeya_fleet.node.watch.node_sample import (
    SAMPLE_SECONDS,
    Levels,
    SampleRing,
    Totals,
    sample_between,
)
from kakeya_fleet.node.watch.notable import notable_part
from kakeya_fleet.node.watch.pacer import Pacer
from kakeya_fleet.node.watch.span_ring import SpanRing
from kakeya_fleet.node.watch.transfers import TransferState
from kakeya_fleet.node.watch.watch_wire import event_to_wire, sample_to_wire, transfer_to_wire
from kakeya_fleet.node.watch.watchers import Watcher, Watchers

NODE_QUEUE = 512
URGENT_SECONDS = 0.1
"""Between two reports of the node of which the first was told at once."""
TRANSFER_SECONDS = 0.25
_NODE = ""
"""Stands for the node among the ids of transfers."""


class Watched(Protocol):
    """The node that is watched. Its calls return at once."""

    def now(self) -> wire.GetNodeResponse:
        """The node as it is."""
        ...

    def totals(self) -> Totals:
        """What it did since its start."""
        ...

    def levels(self) -> Levels:
        """What it holds; how busy its cores were since the last call."""
        ...


class NodeWatch:
    """Belongs to the event loop on which it was made."""

    def __init__(
        self,
        node: Watched,
        activity: NodeActivity,
        metrics: NodeMetrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
    ) -> None:
        """`clock` gives monotonic seconds, `unix` seconds since 1970."""
        self._node = node
        self._activity = activity
        self._metrics = metrics
        self._clock = clock
        self._unix = unix
        self._ring = SampleRing()
        self._watchers: Watchers[wire.WatchNodeResponse] = Watchers(metrics, NODE_QUEUE)
        self._pacer: Pacer[str] = Pacer()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._told = b""
        activity.events.on_add = self._event
        activity.transfers.on_change = self._transfer
        activity.on_change = self.changed

    @property
    def spans(self) -> SpanRing:
        """What the node did for its latest requests."""
        return self._activity.spans

    async def run(self) -> None:
        """Takes a sample a second until cancelled."""
        before, began = self._node.totals(), self._clock()
        due = began + SAMPLE_SECONDS
        while True:
            await asyncio.sleep(due - self._clock())
            after, now = self._node.totals(), self._clock()
            sample = sample_between(before, after, now - began, self._node.levels(), self._unix())
            before, began = after, now
            # Seconds that were missed are not made up for.
            due = max(due + SAMPLE_SECONDS, now)
            self._ring.add(sample)
            cpu = sample.levels.cpu
            self._metrics.tell_use(cpu.host, cpu.own, sample.levels.accelerator_share)
            if len(self._watchers):
                self._watchers.publish(wire.WatchNodeResponse(sample=sample_to_wire(sample)))
                self._tell_node()

    def changed(self) -> None:
        """Something changed about the node that people wait for: it is told within 0.1 s."""
        self._mark(_NODE, URGENT_SECONDS)

    def history(self, seconds: float) -> wire.NodeHistory:
        """What was, with the samples of the latest `seconds`."""
        return wire.NodeHistory(
            node=self._node.now(),
            sample_seconds=SAMPLE_SECONDS,
            samples=[sample_to_wire(sample) for sample in self._ring.latest(seconds)],
            events=[event_to_wire(event) for event in self._activity.events.latest],
            transfers=[transfer_to_wire(each) for each in self._activity.transfers.statuses()],
        )

    def watcher(self) -> AbstractContextManager[Watcher[wire.WatchNodeResponse]]:
        """A watcher for as long as the context lasts; ask for the history within it."""
        return self._watchers.watcher()

    def close(self) -> None:
        """Ends every watch, after what is queued and what still waits to be told."""
        self._flush(float("inf"))
        self._watchers.close()

    def _event(self, event: NodeEvent) -> None:
        if len(self._watchers):
            self._watchers.publish(wire.WatchNodeResponse(event=event_to_wire(event)))
        # Most events change what the node says of itself as well.
        self.changed()

    def _transfer(self, transfer_id: str) -> None:
        """In any thread."""
        if not len(self._watchers) or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._mark, transfer_id, TRANSFER_SECONDS)

    def _mark(self, key: str, interval: float) -> None:
        if not len(self._watchers):
            return
        self._pacer.mark(key, self._clock(), interval)
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._pacer.next_due
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_later(max(0.0, due - self._clock()), self._ring_timer)

    def _ring_timer(self) -> None:
        self._timer = None
        self._flush(self._clock())
        self._set_timer()

    def _flush(self, now: float) -> None:
        for key in self._pacer.take(now):
            if key == _NODE:
                self._tell_node()
                continue
            status = self._activity.transfers.status(key)
            if status is not None:
                transfer = transfer_to_wire(status)
                self._watchers.publish(wire.WatchNodeResponse(transfer=transfer))
                if status.state is not TransferState.RUNNING:
                    self._pacer.forget(key)

    def _tell_node(self) -> None:
        """Publishes the node, unless nothing about it changed that people notice."""
        report = self._node.now()
        means = notable_part(report)
        if means != self._told:
            self._told = means
            self._watchers.publish(wire.WatchNodeResponse(node=report))

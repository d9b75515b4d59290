"""Asks the nodes of a fleet what each did for a request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kakeya import AsyncClient, KakeyaError, NodeSpans, NodeStatus, Timeouts
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.node_loads import ANSWER_SECONDS, AT_ONCE, nearest_living
from kakeya_fleet.node.cli.asking.told_values import sanitized


@dataclass(frozen=True, slots=True)
class Told:
    """What nodes with spans of the request said, and the names of those that did not answer."""

    nodes: tuple[NodeSpans, ...]
    silent: tuple[str, ...]


async def ask_fleet(client: AsyncClient, request: str) -> Told:
    """Asks all for the trace whose id, or one of whose request ids, is `request`.

    A node knows a request id only where it was given, and the trace everywhere.
    """
    nodes = nearest_living(await client.fleet.nodes())
    asking = _Asking(client.address)
    told, silent = await asking.all(nodes, request)
    traces = {span.trace_id for node in told for span in node.spans}
    for trace_id in traces - {request}:
        more, more_silent = await asking.all(nodes, trace_id)
        told, silent = told + more, silent | more_silent
    return Told(_joined(told), tuple(sorted(silent)))


class _Asking:
    def __init__(self, via: str) -> None:
        self._callers = Callers(via)
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def all(
        self, nodes: Sequence[NodeStatus], request: str
    ) -> tuple[list[NodeSpans], set[str]]:
        """Their answers, and the names of the silent ones."""
        answers = await asyncio.gather(*(self._one(node, request) for node in nodes))
        silent = {node.name for node, answer in zip(nodes, answers, strict=True) if answer is None}
        return [answer for answer in answers if answer is not None], silent

    async def _one(self, node: NodeStatus, request: str) -> NodeSpans | None:
        timeouts = Timeouts(unary=ANSWER_SECONDS, connect=ANSWER_SECONDS)
        try:
            async with (
                self._at_once,
                self._callers.client(node.address, timeouts) as client,
                asyncio.timeout(ANSWER_SECONDS),
            ):
                return sanitized(await client.fleet.spans(request))
        except (KakeyaError, TimeoutError):
            return None


def _joined(told: Sequence[NodeSpans]) -> tuple[NodeSpans, ...]:
    """One a node, each span once; nodes without any left out."""
    by_node: dict[str, NodeSpans] = {}
    for each in told:
        before = by_node.get(each.node_id)
        spans = {span.span_id: span for span in (before.spans if before else ())}
        spans |= {span.span_id: span for span in each.spans}
        if spans:
            by_node[each.node_id] = NodeSpans(each.node_id, each.node_name, tuple(spans.values()))
    return tuple(by_node.values())

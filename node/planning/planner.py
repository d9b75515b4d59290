"""Collects what is known and measured, and asks the fleet for a placement."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import grpc.aio

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.fleet.cards.card import Card, ModelOffer, Role, StepCost
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.membership.registry import MAX_NODES
from kakeya_fleet.fleet.placement.kv_choice import ChosenStrategy, choose_kv_strategy
from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance, Measurements, NodeView, plan
from kakeya_fleet.fleet.placement.plan import KvStrategy, Plan, PlanRequest
from kakeya_fleet.fleet.placement.predicted_pair import Server
from kakeya_fleet.fleet.views.node_view import (
    ANY_MODEL,
    UNLIMITED_BYTES,
    MeasuredDrafts,
    PairOfNodes,
)
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.rpc.closed_channels import closed_under_call
from kakeya_fleet.node.rpc.message_limits import beyond_limits

NODE_LIMITS: Mapping[str, int] = {"links": MAX_NODES, "acceptances": 1024}
"""The most elements of GetNodeResponse that are read."""
MAX_ASKED = 64
"""Nodes that one plan asks, the nearest first; the others are planned by their cards."""
# A verifier on another node is asked for its own measurements; one that does
# not answer within this is planned without them.
ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class OwnMeasurements:
    """What this node knows of itself.

    `free_archive_bytes` is what its archive has free, None without one;
    `archive_waits`, by node, what its sessions' layers wait for an archive, seconds;
    `distrusted_archives` what an archive did that is not asked now, the end of a sentence;
    `draft_times` seconds until a proposer's drafts came, the way included. `acceptances` are of
    greedy text, `sampled_acceptances` of text at a temperature, of which less is guessed;
    `gains` and `sampled_gains` say how many times as fast as alone its sessions were.
    """

    acceptances: Mapping[tuple[str, str], MeasuredAcceptance] = field(default_factory=dict)
    sampled_acceptances: Mapping[tuple[str, str], MeasuredAcceptance] = field(default_factory=dict)
    gains: Mapping[tuple[str, ProposerKey], float] = field(default_factory=dict)
    sampled_gains: Mapping[tuple[str, ProposerKey], float] = field(default_factory=dict)
    open_breakers: frozenset[ProposerKey] = frozenset()
    free_archive_bytes: int | None = None
    archive_waits: Mapping[str, float] = field(default_factory=dict)
    distrusted_archives: Mapping[str, str] = field(default_factory=dict)
    draft_times: Mapping[ProposerKey, tuple[StepCost, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Collected:
    """Measurements of several nodes, put together."""

    round_trips: dict[tuple[str, str], float] = field(default_factory=dict)
    acceptances: dict[tuple[str, str], MeasuredAcceptance] = field(default_factory=dict)
    gains: dict[PairOfNodes, float] = field(default_factory=dict)
    free_bytes: dict[str, int] = field(default_factory=dict)
    open_breakers: set[tuple[str, str, str]] = field(default_factory=set)
    archive_free_bytes: dict[str, int] = field(default_factory=dict)
    archive_waits: dict[tuple[str, str], float] = field(default_factory=dict)
    distrusted_archives: dict[tuple[str, str], str] = field(default_factory=dict)
    draft_costs: dict[tuple[str, str, str], MeasuredDrafts] = field(default_factory=dict)

    def measurements(self) -> Measurements:
        return Measurements(
            round_trips=self.round_trips,
            acceptances=self.acceptances,
            gains=self.gains,
            free_bytes=self.free_bytes,
            open_breakers=frozenset(self.open_breakers),
            archive_free_bytes=self.archive_free_bytes,
            archive_waits=self.archive_waits,
            distrusted_archives=self.distrusted_archives,
            draft_costs=self.draft_costs,
        )


class Planner:
    """Plans placements over the whole fleet, and pairings for this node's verifiers."""

    def __init__(
        self,
        fleet: FleetView,
        own: Callable[[], OwnMeasurements],
        free_kv_bytes: Callable[[], int | None],
    ) -> None:
        """`free_kv_bytes` looks through the sessions: what a new one may take, idle ones evicted.

        None of a node without a verifier.
        """
        self._fleet = fleet
        self._own = own
        self._free_kv_bytes = free_kv_bytes

    async def plan(self, request: PlanRequest) -> Plan:
        """The best pair anywhere. Raises `ModelNotFound`, `NoPlacement`.

        Verifiers on other nodes are asked for the ways, the acceptance and the
        load that they measured, and for a `restored` session archives for the memory
        that they have free; all at once and for one second.
        """
        nodes = self._fleet.nodes()
        collected = self._own_side(nodes, self._free_kv_bytes())
        others = [
            view
            for view in nodes
            if view.card.node_id != self._fleet.self_id
            and view.liveness is Liveness.ALIVE
            and _is_asked(view.card, request)
        ]
        others.sort(key=lambda view: self._distance(view.card.node_id))
        await asyncio.gather(
            *(self._ask(view.card.node_id, collected) for view in others[:MAX_ASKED])
        )
        return plan(request, nodes, collected.measurements())

    def plan_here(self, request: PlanRequest) -> Plan:
        """A proposer for a session on this node; its memory is the session registry's matter.

        Raises `ModelNotFound`, `NoPlacement`.
        """
        nodes = self._fleet.nodes()
        collected = self._own_side(nodes, UNLIMITED_BYTES, sampled=request.sampled)
        return plan(request, nodes, collected.measurements())

    def is_measuring(self, request: PlanRequest) -> bool:
        """Whether a proposer that the request names was met, and the way to it is not known yet."""
        return request.names_proposer and any(
            view.liveness is Liveness.ALIVE
            and request.proposer_node_id in ("", view.card.node_id)
            and self._fleet.round_trip(view.card.node_id) is None
            and any(
                request.proposer_model in ("", offer.model_id)
                for offer in view.card.offers(Role.PROPOSER)
            )
            for view in self._fleet.nodes()
        )

    def kv_choice_here(self, request: PlanRequest, offer: ModelOffer) -> ChosenStrategy:
        """How a session on this node's verifier `offer` keeps keys and values, left open."""
        nodes = self._fleet.nodes()
        card = next(view.card for view in nodes if view.card.node_id == self._fleet.self_id)
        measured = self._own_side(nodes, self._free_kv_bytes()).measurements()
        return choose_kv_strategy(request, Server(card, offer), nodes, measured)

    def _distance(self, node_id: str) -> float:
        seconds = self._fleet.round_trip(node_id)
        return math.inf if seconds is None else seconds

    def _own_side(
        self, nodes: list[NodeView], free_kv_bytes: int | None, *, sampled: bool = False
    ) -> _Collected:
        own = self._own()
        self_id = self._fleet.self_id
        known = own.sampled_acceptances if sampled else own.acceptances
        gains = own.sampled_gains if sampled else own.gains
        collected = _Collected(
            acceptances=dict(known),
            gains={
                ((self_id, model_id), proposer): gain
                for (model_id, proposer), gain in gains.items()
            },
        )
        if free_kv_bytes is not None:
            collected.free_bytes[self_id] = free_kv_bytes
        if own.free_archive_bytes is not None:
            collected.archive_free_bytes[self_id] = own.free_archive_bytes
        for view in nodes:
            node_id = view.card.node_id
            seconds = 0.0 if node_id == self_id else self._fleet.round_trip(node_id)
            if seconds is not None:
                collected.round_trips[self_id, node_id] = seconds
            # Nobody is compared with one that cannot draft now.
            if view.liveness is Liveness.ALIVE:
                for model_id, drafts in _drafts_of(view.card, own, seconds or 0.0):
                    collected.draft_costs[self_id, node_id, model_id] = drafts
        for node_id, wait in own.archive_waits.items():
            collected.archive_waits[self_id, node_id] = wait
        for node_id, why in own.distrusted_archives.items():
            collected.distrusted_archives[self_id, node_id] = why
        collected.open_breakers.update((self_id, *proposer) for proposer in own.open_breakers)
        return collected

    async def _ask(self, node_id: str, collected: _Collected) -> None:
        """Adds what a verifier's node measured, if it says so in time."""
        try:
            stub = capability_pb2_grpc.CapabilityServiceStub(self._fleet.channel(node_id))
            answer = await stub.GetNode(capability_pb2.GetNodeRequest(), timeout=ASK_SECONDS)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, FleetError):
            # Planned without measurements: the plan's rejections say so.
            return
        except asyncio.CancelledError:
            if not closed_under_call():
                raise
            # The channel was closed under the call: the node moved or has gone.
            return
        # gRPC gives None for bytes that do not parse.
        if isinstance(answer, capability_pb2.GetNodeResponse) and not beyond_limits(
            answer, NODE_LIMITS
        ):
            _take(node_id, answer, collected)


def _drafts_of(
    card: Card, own: OwnMeasurements, round_trip_seconds: float
) -> Iterator[tuple[str, MeasuredDrafts]]:
    """What drafts of the node's models took this one's sessions, without the way: plans add it."""
    for offer in card.offers(Role.PROPOSER):
        costs = tuple(
            StepCost(time.token_count, max(0.0, time.seconds - round_trip_seconds))
            for time in own.draft_times.get((card.node_id, offer.model_id), ())
        )
        if costs:
            yield offer.model_id, MeasuredDrafts(offer.kind, costs)


def _take(node_id: str, answer: capability_pb2.GetNodeResponse, collected: _Collected) -> None:
    """Adds what a node says that it measured; figures that cannot be are left out."""
    collected.round_trips[node_id, node_id] = 0.0
    for link in answer.links:
        if 0.0 < link.round_trip_seconds < math.inf:
            collected.round_trips[node_id, link.node_id] = link.round_trip_seconds
        if 0.0 < link.archive_wait_seconds < math.inf:
            collected.archive_waits[node_id, link.node_id] = link.archive_wait_seconds
        if link.breaker_open:
            models = link.breaker_open_models or (ANY_MODEL,)
            collected.open_breakers.update((node_id, link.node_id, model) for model in models)
    for line in answer.acceptances:
        pair = (line.verifier_model_id, line.proposer_model_id)
        theirs = _acceptance(line)
        if theirs is None:
            continue
        known = collected.acceptances.get(pair)
        if known is None or known.session_count < theirs.session_count:
            collected.acceptances[pair] = theirs
    if answer.HasField("load"):
        load = answer.load
        collected.free_bytes[node_id] = max(0, load.kv_budget_bytes - load.kv_bytes)
        if load.archive_budget_bytes:
            free = load.archive_budget_bytes - load.archive_bytes
            collected.archive_free_bytes[node_id] = max(0, free)


def _acceptance(line: capability_pb2.MeasuredAcceptance) -> MeasuredAcceptance | None:
    """What a node says of a pair; None for figures that cannot be."""
    rate, low, high = line.acceptance_rate, line.acceptance_rate_low, line.acceptance_rate_high
    if not 0.0 <= low <= rate <= high <= 1.0 or not 0.0 <= line.session_count < math.inf:
        return None
    return MeasuredAcceptance(rate, line.drafted_count, low, high, line.session_count)


def _is_asked(card: Card, request: PlanRequest) -> bool:
    """Whether a plan needs to know what a node measured."""
    serves = any(offer.model_id == request.verifier_model for offer in card.offers(Role.VERIFIER))
    may_need = request.kv_strategy in (KvStrategy.RESTORED, None)
    needs_archive = may_need and not request.without_archive
    return serves or (needs_archive and card.archive is not None)

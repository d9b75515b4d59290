"""Nodes of the data plane alone: real roles and servers, a fleet view by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import grpc.aio

from kakeya.v1 import proposer_pb2_grpc
from kakeya_fleet.fleet.cards.card import (
    Accelerator,
    ArchiveOffer,
    Card,
    ModelKind,
    ModelOffer,
    Role,
    StepCost,
)
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.fleet.views.node_view import NodeView, view_of
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.grpc_settings import client_options, server_options
from kakeya_fleet.node.watch.activity import NodeActivity

SETTINGS = RoleSettings(kv_budget_bytes=64 << 20, draft_deadline_seconds=20.0)
ROUND_TRIP_SECONDS = 2e-4


def card(
    node_id: str,
    address: str,
    models: tuple[ModelOffer, ...],
    archive: ArchiveOffer | None = None,
) -> Card:
    """A card of a node with these models."""
    return Card(
        node_id=node_id,
        name=node_id,
        fleet_name="test",
        boot_id="b",
        incarnation=1,
        sequence=0,
        public_key=b"k" * 32,
        addresses=(address,),
        platform="test",
        accelerator=Accelerator("cpu", "test"),
        memory_total_bytes=1 << 34,
        memory_free_bytes=1 << 33,
        software_version="0.1.0",
        protocol_min=1,
        protocol_max=1,
        models=models,
        ring_address="",
        announced_at_unix=0.0,
        ttl_seconds=60.0,
        archive=archive,
    )


class Directory:
    """All nodes of a test, as each of them knows them."""

    def __init__(self) -> None:
        self.views: dict[str, NodeView] = {}
        self.channels: dict[str, grpc.aio.Channel] = {}
        self.allowed: dict[str, frozenset[Role]] = {}
        """What keepers let a node serve, of those of which they say something."""

    async def put(
        self,
        node_id: str,
        address: str,
        models: tuple[ModelOffer, ...],
        archive: ArchiveOffer | None = None,
    ) -> None:
        """Adds a node, or moves it to another address."""
        self.views[node_id] = NodeView(card(node_id, address, models, archive), Liveness.ALIVE)
        old = self.channels.pop(node_id, None)
        if old is not None:
            await old.close()
        self.channels[node_id] = grpc.aio.insecure_channel(address, options=client_options())

    def set_liveness(self, node_id: str, liveness: Liveness) -> None:
        """What everybody holds of a node from now on."""
        self.views[node_id] = replace(self.views[node_id], liveness=liveness)

    def say_steps(self, node_id: str, *costs: StepCost) -> None:
        """What everybody, the node itself too, plans with for each of its models' steps."""
        view = self.views[node_id]
        models = tuple(replace(each, step_costs=costs) for each in view.card.models)
        self.views[node_id] = replace(view, card=replace(view.card, models=models))


@dataclass
class View:
    """The directory as one node's `FleetView`."""

    self_id: str
    directory: Directory
    round_trips: dict[str, float] = field(default_factory=dict)

    def nodes(self) -> list[NodeView]:
        allowed = self.directory.allowed
        return [
            view_of(view.card, view.liveness, allowed.get(node_id))
            for node_id, view in sorted(self.directory.views.items())
        ]

    def round_trip(self, node_id: str) -> float | None:
        return self.round_trips.get(node_id, ROUND_TRIP_SECONDS)

    def address(self, node_id: str) -> str | None:
        view = self.directory.views.get(node_id)
        return view.card.addresses[0] if view is not None else None

    def boot_id(self, node_id: str) -> str:
        view = self.directory.views.get(node_id)
        return view.card.boot_id if view is not None else ""

    def channel(self, node_id: str, serving: Role | None = None) -> grpc.aio.Channel:
        allowed = self.directory.allowed.get(node_id, frozenset(Role))
        if node_id not in self.directory.channels or (serving and serving not in allowed):
            raise NodeNotFound(f"no node {node_id}", node_id=node_id)
        return self.directory.channels[node_id]


@dataclass
class Node:
    """A started node."""

    node_id: str
    roles: Roles
    server: grpc.aio.Server
    port: int
    metrics: NodeMetrics
    view: View
    channel: grpc.aio.Channel
    activity: NodeActivity

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def stop(self, *, noticed: bool = True) -> None:
        """Ends its server and roles; the others hold it for dead once that is `noticed`."""
        if noticed:
            self.view.directory.set_liveness(self.node_id, Liveness.DEAD)
        await self.channel.close()
        await self.server.stop(0)
        await self.roles.close()


def roles_of(*specs: str, settings: RoleSettings = SETTINGS) -> Roles:
    """The roles of a node that knows no other, before anything is loaded."""
    expected = ExpectedRoles(specs, settings.group)
    return Roles(expected, settings, View("alone", Directory()), NodeMetrics())


class Neighbourhood:
    """Starts nodes and liars, and stops them all."""

    def __init__(self) -> None:
        self.directory = Directory()
        self._nodes: list[Node] = []
        self._servers: list[grpc.aio.Server] = []

    async def __aenter__(self) -> Neighbourhood:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for channel in self.directory.channels.values():
            await channel.close()
        for node in self._nodes:
            await node.stop()
        for server in self._servers:
            await server.stop(0)

    async def start(
        self,
        node_id: str,
        *specs: str,
        settings: RoleSettings = SETTINGS,
        limits: Limits | None = None,
        port: int = 0,
        roads: Sequence[RoadBuilder] = (),
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> Node:
        """A node that serves the specs, and whose tensor links may have `roads`.

        Calls pass the `interceptors` behind the one that answers errors.
        """
        metrics = NodeMetrics()
        view = View(node_id, self.directory)
        expected = ExpectedRoles(specs, settings.group)
        activity = NodeActivity()
        allowances = Allowances(limits or Limits(), metrics)
        roles = Roles(
            expected,
            settings,
            view,
            metrics,
            roads=roads,
            activity=activity,
            allowances=allowances,
        )
        await roles.load()
        server = grpc.aio.server(
            interceptors=[ErrorInterceptor(metrics), *interceptors], options=server_options()
        )
        roles.register(server)
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        address = f"127.0.0.1:{bound}"
        await self.directory.put(node_id, address, roles.offers(), roles.archive_offer())
        channel = grpc.aio.insecure_channel(
            address, options=[("grpc.max_send_message_length", 64 << 20)]
        )
        node = Node(node_id, roles, server, bound, metrics, view, channel, activity)
        self._nodes.append(node)
        return node

    async def start_liar(
        self,
        node_id: str,
        servicer: proposer_pb2_grpc.ProposerServiceServicer,
        *,
        offer: ModelOffer | None = None,
        port: int = 0,
    ) -> grpc.aio.Server:
        """A node that has nothing but this proposer, under the model id "liar"."""
        server = grpc.aio.server(options=server_options())
        proposer_pb2_grpc.add_ProposerServiceServicer_to_server(servicer, server)
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        self._servers.append(server)
        await self.directory.put(node_id, f"127.0.0.1:{bound}", (offer or LIAR_OFFER,))
        return server


LIAR_OFFER = ModelOffer(
    model_id="liar",
    role=Role.PROPOSER,
    kind=ModelKind.NGRAM,
    step_costs=(StepCost(1, 1e-5), StepCost(15, 2e-5)),
)

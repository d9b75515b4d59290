"""Makes a node of its parts, in order: each is given what it needs, and closed in turn."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import grpc.aio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_SERVICE
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from kakeya.v1 import capability_pb2_grpc, model_service_pb2_grpc, trust_pb2_grpc
from kakeya_fleet.node.app.agent_events import AgentEvents
from kakeya_fleet.node.app.announcements import Announcements
from kakeya_fleet.node.app.capability_service import SERVICE_NAME, CapabilityServicer
from kakeya_fleet.node.app.control_plane import ControlPlane, open_control_plane
from kakeya_fleet.node.app.departure import Departure
from kakeya_fleet.node.app.event_order import EventOrder
from kakeya_fleet.node.app.ground import Ground, break_ground
from kakeya_fleet.node.app.idle_models import IdleUnloading
from kakeya_fleet.node.app.model_loads import ModelLoads
from kakeya_fleet.node.app.model_pulls import ModelPulls
from kakeya_fleet.node.app.model_service import SERVICE_NAME as MODEL_SERVICE
from kakeya_fleet.node.app.model_service import ModelServicer
from kakeya_fleet.node.app.node import Node
from kakeya_fleet.node.app.node_report import NodeReport
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.app.settings import NodeSettings
from kakeya_fleet.node.app.trust_service import TrustServicer
from kakeya_fleet.node.config.config import Config
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.copying.disk_threads import DiskThreads
from kakeya_fleet.node.copying.shared_models import SharedModels
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.links.roads.host_roads import RingProbe, road_builders
from kakeya_fleet.node.membership.fleet_changes import EventSink
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.health import HEALTH_SERVICE, Health
from kakeya_fleet.node.rpc.refusals import TooManyReads
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.event_log import EventLog
from kakeya_fleet.node.watch.loop_lookout import LoopLookout
from kakeya_fleet.node.watch.node_watch import NodeWatch
from kakeya_fleet.node.watch.stall_report import StallReport
from kakeya_fleet.node.watch.watched_loop import watched_loop


@asynccontextmanager
async def open_node(
    config: Config,
    on_event: EventSink,
    activity: NodeActivity | None = None,
    state: StateDirectory | None = None,
    settings: NodeSettings | None = None,
) -> AsyncIterator[Node]:
    """A node whose ports are bound, ready to serve; all of it is closed with the context.

    `activity` is where the node notes what it does, for one who looks at it from within the
    process. `state` is the configured state directory where the caller opened it; it is
    closed too. Raises `NodeError`, and the refusals of what cannot be served.
    """
    activity = activity if activity is not None else NodeActivity()
    settings = settings or NodeSettings()
    try:
        async with AsyncExitStack() as stack:
            ground = await break_ground(stack, config, settings.health, state, activity.spans)
            _watch_loop(stack, ground.metrics, activity.events)
            order = EventOrder(on_event)
            control = await open_control_plane(stack, ground, order.of_fleet, activity.events)
            yield _composed(ground, control, order.of_node, activity, settings)
    except BaseExceptionGroup as group:
        raise _expected(group) from None


def _watch_loop(stack: AsyncExitStack, metrics: NodeMetrics, events: EventLog) -> None:
    """Tells of stalls for as long as `stack` is open, where an agent's own loop runs the node."""
    loop = watched_loop()
    if loop is not None:
        loop.tell(StallReport(loop.settings, events, metrics))
        lookout = LoopLookout(loop.turns, metrics, loop.settings.look_seconds)
        lookout.open()
        stack.callback(lookout.close)


def _composed(
    ground: Ground,
    control: ControlPlane,
    on_event: EventSink,
    activity: NodeActivity,
    settings: NodeSettings,
) -> Node:
    config, metrics = ground.config, ground.metrics
    departure = Departure(config.drain_seconds)
    probe = RingProbe()
    codecs = replace(ground.settings.codecs, quiet_seconds=settings.codec_quiet_seconds)
    roles = Roles(
        ground.expected,
        replace(ground.settings, codecs=codecs),
        control.known,
        metrics,
        roads=road_builders(
            config.links,
            _road_host(control),
            probe,
            within_host=ground.settings.keeps_tensors_here,
        ),
        observers=ground.observers,
        activity=activity,
        allowances=ground.allowances,
    )
    ground.beneath.push_async_callback(roles.close)
    report = NodeReport(
        control.known,
        roles,
        control.seeds,
        ground.http_address,
        time.time(),
        ground.accelerator_use,
    )
    watch = NodeWatch(report, activity, metrics)
    capability = CapabilityServicer(
        control.gossip,
        control.known,
        control.watch,
        report,
        watch,
        metrics,
        ground.allowances,
        departure.ask,
    )
    trust_pb2_grpc.add_TrustServiceServicer_to_server(
        TrustServicer(
            control.keeping,
            control.known,
            control.issuer,
            trusted_network=config.trusted_network,
        ),
        ground.server,
    )
    is_local = ground.own.stays_here
    health = _registered(ground.server, capability, roles, is_local=is_local)
    announcements = Announcements(roles, control, health, settings.ring_trial_seconds)
    unloading = IdleUnloading(
        roles,
        time.monotonic,
        announcements.tell_peers,
        after_seconds=config.unload_after_seconds,
    )
    loads, pulls = _open_models(
        ground, control, roles, activity, announcements.tell_peers, unloading
    )
    return Node(
        ground=ground,
        control=control,
        roles=roles,
        health=health,
        announcements=announcements,
        watch=watch,
        events=AgentEvents(
            ground.identity.node_id,
            config.name,
            config.fleet_name,
            lambda: ground.own.addresses[0],
            lambda: ground.http_address,
            ground.local_address,
            control.applications_address,
            control.https_address,
            ground.taken_ports,
        ),
        activity=activity,
        ring_probe=probe,
        departure=departure,
        loads=loads,
        pulls=pulls,
        unloading=unloading,
        on_event=on_event,
    )


def _open_models(
    ground: Ground,
    control: ControlPlane,
    roles: Roles,
    activity: NodeActivity,
    tell_peers: Callable[[], Awaitable[None]],
    unloading: IdleUnloading,
) -> tuple[ModelLoads, ModelPulls]:
    """Lets models come and go while the node runs, and adds what they are asked for by."""
    allowances = ground.allowances
    limits = allowances.limits.models
    loads = ModelLoads(
        roles,
        activity.transfers,
        control.tasks,
        tell_peers,
        limits.loads,
        unloading.keep_for,
    )
    allowances.watch("models.loads", lambda: len(loads), lambda: loads.refused_count)
    threads = DiskThreads()
    ground.beneath.callback(threads.close)
    shared = SharedModels(roles.loaded_from, threads)
    ground.beneath.push_async_callback(shared.close)
    pulls = ModelPulls(roles, control.known, threads, activity, control.tasks, limits.pulls)
    allowances.watch("models.pulls", lambda: len(pulls), lambda: pulls.refused_count)
    reads = allowances.share("models.read_bytes", TooManyReads)
    drain_seconds = ground.config.drain_seconds
    servicer = ModelServicer(roles, loads, pulls, shared, reads, tell_peers, drain_seconds)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicer, ground.server)
    return loads, pulls


def _registered(
    server: grpc.aio.Server, capability: CapabilityServicer, roles: Roles, *, is_local: bool
) -> Health:
    """Adds all services to the server; what it can do is told to programs of this host alone."""
    capability_pb2_grpc.add_CapabilityServiceServicer_to_server(capability, server)
    services = (SERVICE_NAME, MODEL_SERVICE, *roles.register(server))
    health = Health(services)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if is_local:
        enable_server_reflection((*services, HEALTH_SERVICE, REFLECTION_SERVICE), server)
    return health


def _road_host(control: ControlPlane) -> str:
    """The address at which another host's ring reaches this one, an IPv4 address if any."""
    hosts = control.own.hosts
    return next((host for host in hosts if ":" not in host), hosts[0])


def _expected(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The only error of the group, or the first when all are meant for people."""
    errors = list(_leaves(group))
    if len(errors) == 1 or all(isinstance(error, NodeError) for error in errors):
        return errors[0]
    return group


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error

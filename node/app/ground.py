"""What a node stands on before it knows a fleet: state, identity, ports, limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import grpc.aio
import structlog

from kakeya_fleet.engine.backends import device_facts, device_use
from kakeya_fleet.engine.contracts.device import AUTO, DeviceFacts
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.config.config import Config, is_loopback, join_address
from kakeya_fleet.node.config.kv_budget import kv_budget_bytes
from kakeya_fleet.node.config.machine import process_started_at
from kakeya_fleet.node.config.ports import GRPC_PORT, HTTP_PORT, passed_over, ports_to_try
from kakeya_fleet.node.config.state_directory import CODECS_FILE, StateDirectory
from kakeya_fleet.node.http.server import HttpServer
from kakeya_fleet.node.http.settings import HealthSettings, HttpSettings
from kakeya_fleet.node.membership.identity import Identity, load_or_create
from kakeya_fleet.node.membership.own_addresses import OwnAddresses
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.settings import CodecSettings, RestorerSettings, RoleSettings
from kakeya_fleet.node.roles.verifier.observer import SessionObserver
from kakeya_fleet.node.rpc.authorisation import Authorisation
from kakeya_fleet.node.rpc.call_admission import CallAdmission
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.free_port import first_free
from kakeya_fleet.node.rpc.listening import listen, make_server
from kakeya_fleet.node.rpc.recognition import Recogniser, Recognition
from kakeya_fleet.node.tracing.kept_spans import KeptSpans
from kakeya_fleet.node.tracing.starting import Traces, start_traces
from kakeya_fleet.node.trust.membership_files import MembershipFiles
from kakeya_fleet.node.trust.tls import applications_credentials, server_credentials
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.accelerator_use import AcceleratorUse
from kakeya_fleet.node.watch.span_ring import SpanRing

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ground:
    """`server` is bound to `port`, at the addresses `own`, and nothing is registered at it yet.

    `http` is None when the configuration wants none. `trust` is None in a fleet without an
    authority; with it members alone call at `port`, programs of this machine in plain text at
    `local_port`, and applications with a key at `applications_port`, 0 for none. `taken_ports`
    are those that the node would have had before `port`, and before that of HTTP. `beneath` is
    closed once the server has stopped. `device` is what was asked for by name; None where a back
    end takes its own. `accelerator_use` tells how busy it is.
    """

    config: Config
    state: StateDirectory
    identity: Identity
    incarnation: int
    metrics: NodeMetrics
    allowances: Allowances
    observers: tuple[SessionObserver, ...]
    expected: ExpectedRoles
    settings: RoleSettings
    device: DeviceFacts | None
    accelerator_use: AcceleratorUse
    server: grpc.aio.Server
    port: int
    own: OwnAddresses
    trust: Trust | None
    local_port: int
    applications_port: int
    taken_ports: tuple[int, ...]
    http: HttpServer | None
    beneath: AsyncExitStack

    @property
    def local_address(self) -> str:
        """Where programs of this machine call in plain text; empty where all do."""
        return join_address("127.0.0.1", self.local_port) if self.local_port else ""

    @property
    def near_address(self) -> str:
        """Where this process itself calls at `port`, whatever addresses the machine has."""
        host = self.config.bind_address[0]
        return join_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), self.port)

    @property
    def http_address(self) -> str:
        """Where HTTP answers, host:port; empty without it."""
        return self.http.address if self.http is not None else ""


async def break_ground(
    stack: AsyncExitStack,
    config: Config,
    health: HealthSettings,
    state: StateDirectory | None = None,
    spans: SpanRing | None = None,
) -> Ground:
    """Opens all of it, for as long as `stack` is; others can connect from now on.

    `spans` gets what is done for requests. `state` is the configured directory where the caller
    opened it. Raises `NodeError`, and a `ModelUnusable` or `BadParameters` for what cannot be
    served.
    """
    state = state if state is not None else StateDirectory(config.state_path)
    stack.callback(state.close)
    identity = load_or_create(state.identity_file)
    trust = Trust.open(MembershipFiles(state.path), identity.node_id, time.time)
    if trust is not None:
        # Before others can connect: it says what is wrong with the clock or the certificate.
        trust.member_of(trust.member.certificate)
    incarnation = state.raise_incarnation()
    started = process_started_at()
    state.announce_start(config.name, started)
    metrics = NodeMetrics()
    metrics.incarnation.set(incarnation)
    allowances = Allowances(Limits(), metrics)
    kept = KeptSpans(spans if spans is not None else SpanRing())
    http = _http_server(config, state, metrics, allowances, health, kept.ring, trust)
    traces = _traces(config, identity.node_id, metrics)
    for each in traces:
        stack.push_async_callback(each.close)
    device = await asyncio.to_thread(_named_device, config)
    accelerator_use = AcceleratorUse(await asyncio.to_thread(_accelerator_read, config))
    stack.callback(accelerator_use.close)
    free = system_memory.available_bytes() if device is None else device.memory_free_bytes
    settings = replace(role_settings(config, free), trust=trust, channels=Channels(trust))
    expected = ExpectedRoles(config.serve, settings.group)
    beneath = await stack.enter_async_context(AsyncExitStack())
    server = _server(traces, kept, metrics, allowances, trust)
    stack.push_async_callback(server.stop, None)
    port, local_port, applications_port = _listening(server, config, state, trust)
    own = OwnAddresses(config.bind_address[0], port)
    state.announce_start(config.name, started, own.addresses[0])
    if http is not None:
        stack.push_async_callback(http.close)
        await http.start()
        if config.serve:
            # Its models take longer to load, and are to be asked for.
            http.load()
    taken = _taken_ports(config, state, port, http)
    if taken:
        _log.info("ports_taken", ports=taken, port=port)
    _warn_if_exposed(config, is_member=trust is not None)
    if config.serve:
        _log.info("loading", serve=config.serve)
    await expected.prepare(config.backend, config.device)
    recent = (http.recent,) if http is not None else ()
    observers = (*recent, kept.observer, *(each.observer for each in traces))
    return Ground(
        config=config,
        state=state,
        identity=identity,
        incarnation=incarnation,
        metrics=metrics,
        allowances=allowances,
        observers=observers,
        expected=expected,
        settings=settings,
        device=device,
        accelerator_use=accelerator_use,
        server=server,
        port=port,
        own=own,
        trust=trust,
        local_port=local_port,
        applications_port=applications_port,
        taken_ports=taken,
        http=http,
        beneath=beneath,
    )


def _server(
    traces: tuple[Traces, ...],
    kept: KeptSpans,
    metrics: NodeMetrics,
    allowances: Allowances,
    trust: Trust | None,
) -> grpc.aio.Server:
    """A server that asks of each call, in this order: who calls, is there room, may they."""
    recogniser = Recogniser(trust) if trust is not None else None
    return make_server(
        *(each.interceptor for each in traces),
        ErrorInterceptor(metrics),
        *((Recognition(recogniser),) if recogniser is not None else ()),
        CallAdmission(allowances),
        *((Authorisation(trust, recogniser),) if trust is not None and recogniser else ()),
        kept.interceptor,
        limits=allowances.limits.calls,
    )


def _ports_to_try(config: Config, state: StateDirectory) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ports of gRPC and of HTTP, in the order in which they are tried."""
    _, port = config.bind_address
    _, http_port = config.http_address or ("", 0)
    return (
        ports_to_try(port, state.last_port(), GRPC_PORT),
        ports_to_try(http_port, state.last_http_port(), HTTP_PORT),
    )


def _taken_ports(
    config: Config, state: StateDirectory, port: int, http: HttpServer | None
) -> tuple[int, ...]:
    """Those that were taken before `port` was had, and before that of HTTP."""
    ports, http_ports = _ports_to_try(config, state)
    taken = passed_over(ports, port)
    return taken if http is None else taken + passed_over(http_ports, http.port)


def _listening(
    server: grpc.aio.Server, config: Config, state: StateDirectory, trust: Trust | None
) -> tuple[int, int, int]:
    """The ports of all who call, of programs of this machine, of applications; 0 for none.

    Raises `PortInUse`.
    """
    host, wished = config.bind_address
    credentials = server_credentials(trust) if trust is not None else None
    port = listen(server, host, wished, state.last_port(), credentials)
    if trust is None:
        return port, 0, 0
    local_port = listen(server, "127.0.0.1", 0, state.last_local_port())
    if config.applications_port < 0:
        return port, local_port, 0
    applications_port = listen(
        server,
        host,
        config.applications_port,
        state.last_key_port("applications"),
        applications_credentials(trust),
    )
    return port, local_port, applications_port


def _named_device(config: Config) -> DeviceFacts | None:
    """What is known of the device that is asked for by name; imports the back end.

    None where a back end takes its own, whose memory is the machine's. Raises
    `DeviceUnavailable`.
    """
    if config.device == AUTO:
        return None
    return device_facts(config.device, backend=config.backend)


def _accelerator_read(config: Config) -> Callable[[], float | None] | None:
    """What reads how busy the device is that is asked for by name; None for the back end's own."""
    if config.device == AUTO:
        return None
    return device_use(config.device, backend=config.backend)


def role_settings(config: Config, available_bytes: int) -> RoleSettings:
    """The limits of the roles, as configured; a quarter of the memory that is free if left open.

    `available_bytes` are free where keys and values will be.
    """
    return RoleSettings(
        kv_budget_bytes=config.kv_budget_bytes or kv_budget_bytes(available_bytes),
        session_ttl_seconds=config.session_ttl_seconds,
        draft_deadline_seconds=config.draft_deadline_seconds,
        dtype=config.dtype,
        weights=config.weights,
        backend=config.backend,
        device=config.device,
        links=config.links,
        host=config.bind_address[0],
        group=group_of(config),
        trusted_network=config.trusted_network,
        codecs=CodecSettings(
            samples=config.codec_sampling, file=config.state_path.absolute() / CODECS_FILE
        ),
        restorers=RestorerSettings(
            deadline=config.archive_deadline_seconds,
            rebuild=config.restorer_wait_seconds,
            lease=2 * config.session_ttl_seconds,
        ),
    )


def group_of(config: Config) -> GroupSource | None:
    """The ranks that serve the verifier together; None for this process alone."""
    if not config.group:
        return None
    return GroupSource(
        Path(config.group).expanduser(),
        host=config.bind_address[0],
        limits=GroupLimits(silence_seconds=config.group_deadline_seconds),
    )


def _http_server(
    config: Config,
    state: StateDirectory,
    metrics: NodeMetrics,
    allowances: Allowances,
    health: HealthSettings,
    spans: SpanRing,
    trust: Trust | None,
) -> HttpServer | None:
    address = config.http_address
    if address is None:
        return None
    host, port = address
    _, ports = _ports_to_try(config, state)
    return HttpServer(
        HttpSettings(
            host,
            port or 0,
            last_port=first_free(host, ports),
            https_host=config.bind_address[0],
            https_port=config.https_port,
            last_https_port=state.last_key_port("https"),
            names=config.http_hosts,
            origins=config.http_origins,
            health=health,
        ),
        metrics,
        allowances,
        spans,
        trust,
    )


def _traces(config: Config, node_id: str, metrics: NodeMetrics) -> tuple[Traces, ...]:
    """The traces of the node's sessions; none when they are off. Raises `TracesExtraMissing`."""
    if not config.traces_endpoint:
        return ()
    resource = {
        "service.name": "kakeya-node",
        "service.namespace": config.fleet_name,
        "service.instance.id": node_id,
        "host.name": config.name,
    }
    return (start_traces(config.traces_endpoint, resource, metrics),)


def _warn_if_exposed(config: Config, *, is_member: bool) -> None:
    if not is_member and not is_loopback(config.bind_address[0]):
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

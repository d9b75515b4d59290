"""A fleet of three nodes with sessions, transfers and events, as its watches would tell it."""

import math
from collections.abc import Iterable
from dataclasses import replace

from kakeya import (
    BlockTiming,
    Card,
    EventSeverity,
    FleetSnapshot,
    KvStrategy,
    LinkPurpose,
    Liveness,
    ModelKind,
    ModelOffer,
    Node,
    NodeEvent,
    NodeHistory,
    NodeLoad,
    NodeSample,
    NodeStatus,
    PeerLink,
    Placement,
    Plan,
    Role,
    SessionActivity,
    SessionInfo,
    SessionsSnapshot,
    SessionState,
    TensorLink,
    Transfer,
    TransferKind,
    TransferState,
    Transport,
)
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet

GIB = 1024**3
NOW = 1_790_000_000.0


def offer(model_id: str, role: Role, kind: ModelKind) -> ModelOffer:
    return ModelOffer(
        model_id, role, kind, "w" * 64, "t" * 64, "", "float32", 2048, 300, 2, (), True, 0, "torch"
    )


TOY = offer("toy", Role.VERIFIER, ModelKind.AUTOREGRESSIVE)
NGRAM = offer("ngram", Role.PROPOSER, ModelKind.NGRAM)


def card(name: str, *models: ModelOffer) -> Card:
    return Card(
        node_id=name * 4,
        name=name,
        fleet_name="home",
        boot_id="b",
        incarnation=1,
        sequence=0,
        public_key="",
        addresses=(f"10.0.0.{name[-1]}:7600",),
        platform="linux/x86_64",
        accelerator_kind="cpu",
        accelerator_name="x",
        memory_total_bytes=16 * GIB,
        memory_free_bytes=12 * GIB,
        software_version="0.1.0",
        protocol_min=1,
        protocol_max=1,
        models=models,
        ring_address="",
        announced_at_unix=0.0,
        ttl_seconds=60.0,
    )


def status(name: str, *models: ModelOffer, liveness: Liveness = Liveness.ALIVE) -> NodeStatus:
    return NodeStatus(name * 4, liveness, 0.4, 0.0003, name == "mini-1", card(name, *models))


def node(name: str, *models: ModelOffer, links: tuple[TensorLink, ...] = ()) -> Node:
    load = NodeLoad(1, 1, 0, 4096, GIB, 12 * GIB)
    peers = (PeerLink("mini-2" * 4, 0.0004, breaker_open=False),)
    return Node(card(name, *models), peers, load, (), "", False, links)


def sample(at: float, speed: float) -> NodeSample:
    return NodeSample(
        at, speed, 0.0, 2, 1, 0, 3 * 1024**2, 9 * GIB, 0, 8, 6, 2, 0.0, 1e6, 0.874, 0.5
    )


def link() -> TensorLink:
    return TensorLink(
        "mini-2" * 4,
        LinkPurpose.FEATURES,
        Transport.RING,
        1,
        940e6,
        "both cards have a ring",
        12.0,
        is_caller=True,
        tensor_count=10,
        byte_count=10**7,
        demotion_count=0,
    )


def block(index: int, drafted: int, accepted: int) -> BlockTiming:
    return BlockTiming(
        first_index=index,
        drafted_count=drafted,
        accepted_count=accepted,
        draft_seconds=0.001,
        wire_seconds=0.0005,
        wait_seconds=0.001,
        verify_seconds=0.009,
        drafted_ahead=False,
        start_seconds=index * 0.002,
        generation_number=1,
        committed_count=accepted + 1,
    )


def session(
    name: str,
    *,
    label: str,
    speed: float = 41.0,
    history: int = 12_345,
    blocks: Iterable[BlockTiming] = (),
    age: float = 60.0,
) -> SessionActivity:
    where = Placement("mini-1" * 4, "mini-1", "10.0.0.1:7600", "ngram")
    plan = Plan(
        verifier=replace(where, model_id="toy"),
        proposer=replace(where, node_name="mini-2", node_id="mini-2" * 4),
        transport=None,
        block_size=0,
        predicted_tokens_per_second=0.0,
        predicted_alone_tokens_per_second=0.0,
        round_trip_seconds=0.0,
        acceptance_rate=0.0,
        acceptance_measured=False,
        kv_bytes=0,
        reasons=(),
        rejections=(),
        exact=False,
    )
    info = SessionInfo(
        session_id=name * 8,
        model_id="toy",
        client_label=label,
        history_length=history,
        kv_bytes=3 * 1024**2,
        resident_token_count=1028,
        kv_strategy=KvStrategy.SINK_WINDOW,
        sink_tokens=4,
        window_tokens=1024,
        state=SessionState.GENERATING,
        idle_seconds=0.0,
        ttl_seconds=600.0,
        age_seconds=age,
        plan=plan,
        drop_reason=None,
        forward_count=50,
    )
    return SessionActivity(
        session=info,
        blocks=tuple(blocks),
        tokens_per_second=speed,
        generation_count=2,
        generated_token_count=124,
        prefilled_token_count=1024,
        prefill_seconds=0.9,
        drafted_count=160,
        accepted_count=84,
        verify_forward_count=40,
        draft_seconds=0.2,
        wire_seconds=0.1,
        wait_seconds=0.15,
        verify_seconds=1.9,
        link_changes=(),
        stop_reason=None,
    )


def event(
    number: int, message: str, *, severity: EventSeverity = EventSeverity.INFO, mend: str = ""
) -> NodeEvent:
    return NodeEvent(number, NOW + number, severity, "KIND", message, mend, "", "")


def transfer(state: TransferState = TransferState.RUNNING, error: str = "") -> Transfer:
    return Transfer(
        "t1",
        TransferKind.DOWNLOAD,
        "Qwen/Qwen3-0.6B",
        state,
        400 * 1024**2,
        1200 * 1024**2,
        12e6,
        70.0,
        NOW,
        error,
    )


def busy_fleet() -> WatchedFleet:
    """Two nodes alive, one dead; two sessions; a download."""
    fleet = WatchedFleet()
    nodes = (
        status("mini-1", TOY),
        status("mini-2", NGRAM),
        status("mini-3", liveness=Liveness.DEAD),
    )
    fleet.take_fleet(FleetSnapshot("home", nodes), 0.0)
    samples = tuple(sample(NOW + at, 40 + 30 * math.sin(at / 4)) for at in range(60))
    events = (
        event(1, "mini-2 joined"),
        event(
            2,
            "mini-3 is dead: it has not answered for 6 s",
            severity=EventSeverity.WARNING,
            mend="start it again with `fleet join`",
        ),
    )
    history = NodeHistory(node("mini-1", TOY, links=(link(),)), 1.0, samples, events, (transfer(),))
    fleet.take_node("mini-1" * 4, history)
    drafts = replace(sample(NOW, 0.0), drafts_per_second=12.5)
    quiet = NodeHistory(node("mini-2", NGRAM), 1.0, (drafts,), (), ())
    fleet.take_node("mini-2" * 4, quiet)
    blocks = [block(10 * at, 4, at % 5) for at in range(12)]
    sessions = (
        session("a", label="agent", blocks=blocks),
        session("b", label="", speed=0.0, history=12, age=5.0),
    )
    fleet.take_sessions("mini-1" * 4, SessionsSnapshot(sessions))
    fleet.take_sessions("mini-2" * 4, SessionsSnapshot(()))
    return fleet

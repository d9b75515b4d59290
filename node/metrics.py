"""Every Prometheus metric of the node, on a registry of its own.

`_seconds` and `_bytes` are units, `_total` marks what only rises. Label values
come from closed sets, so that no peer can make series grow without bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from node.errors import PortInUse

if TYPE_CHECKING:
    import threading
    from wsgiref.simple_server import WSGIServer

# 50 us to 2.5 s: a loopback round trip to a stalled draft.
_SHORT = (
    5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
# 5 ms to two minutes: a cached prompt to a long prefill on two slow cores.
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class NodeMetrics:
    """The node's metrics. Thread-safe; one a node, so that two can share a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._data_plane()
        self._control_plane()

    def _data_plane(self) -> None:
        registry = self.registry
        self.sessions_active = Gauge(
            "kakeya_sessions_active", "Sessions that are open.", registry=registry
        )
        self.sessions = Counter(
            "kakeya_sessions_total",
            "Sessions that ended, by outcome: closed, evicted, invariant_violated, group_lost, "
            "drained.",
            ["outcome"],
            registry=registry,
        )
        self.sessions_opened = Counter(
            "kakeya_sessions_opened_total", "Sessions that were opened.", registry=registry
        )
        self.sessions_generating = Gauge(
            "kakeya_sessions_generating", "Sessions that generate now.", registry=registry
        )
        self.evictions = Counter(
            "kakeya_session_evictions_total",
            "Sessions evicted, by reason: ttl, memory.",
            ["reason"],
            registry=registry,
        )
        self.invariant_violations = Counter(
            "kakeya_invariant_violations_total",
            "Broken promises that ended a session, by kind.",
            ["kind"],
            registry=registry,
        )
        self.kv_bytes = Gauge(
            "kakeya_kv_bytes", "Bytes of keys and values allocated.", registry=registry
        )
        self.kv_budget_bytes = Gauge(
            "kakeya_kv_budget_bytes", "Bytes that sessions may take together.", registry=registry
        )
        self.tokens_generated = Counter(
            "kakeya_tokens_generated_total", "Tokens committed by generations.", registry=registry
        )
        self.tokens_prefilled = Counter(
            "kakeya_tokens_prefilled_total",
            "Appended tokens whose keys and values were computed.",
            registry=registry,
        )
        self.draft_tokens = Counter(
            "kakeya_spec_decode_num_draft_tokens_total",
            "Drafted tokens that were verified.",
            registry=registry,
        )
        self.accepted_tokens = Counter(
            "kakeya_spec_decode_num_accepted_tokens_total",
            "Drafted tokens that were accepted.",
            registry=registry,
        )
        self.draft_faults = Counter(
            "kakeya_draft_faults_total",
            "Faults of proposers that a session survived, by kind.",
            ["kind"],
            registry=registry,
        )
        self.draft_streams_active = Gauge(
            "kakeya_draft_streams_active", "Draft streams that are served.", registry=registry
        )
        self.links_active = Gauge(
            "kakeya_links_active", "Tensor links that are served.", registry=registry
        )
        self.links_opened = Counter(
            "kakeya_links_opened_total", "Tensor links that were opened.", registry=registry
        )
        self.link_bytes = Counter(
            "kakeya_link_bytes_total", "Bytes of tensors that arrived on links.", registry=registry
        )
        self.tensors_refused = Counter(
            "kakeya_tensors_refused_total",
            "Tensors that arrived on links and were not taken, by fault: corrupt, not_finite, "
            "wrong_shape, out_of_order.",
            ["fault"],
            registry=registry,
        )
        self._links()
        self.draft_round_trip_seconds = Histogram(
            "kakeya_draft_round_trip_seconds",
            "A draft's way to the proposer and back, its compute time included.",
            registry=registry,
            buckets=_SHORT,
        )
        self.verify_seconds = Histogram(
            "kakeya_verify_seconds",
            "One verify forward with choosing the tokens.",
            registry=registry,
            buckets=_SHORT,
        )
        self.time_to_first_token_seconds = Histogram(
            "kakeya_time_to_first_token_seconds",
            "From the request to the first committed token.",
            registry=registry,
            buckets=_LONG,
        )
        self._restoring()
        self.rpc_errors = Counter(
            "kakeya_rpc_errors_total",
            "Calls that ended with an error, by its reason.",
            ["reason"],
            registry=registry,
        )

    def _links(self) -> None:
        registry = self.registry
        self.link_transports = Gauge(
            "kakeya_link_transports",
            "Ends of tensor links that are open here, by what carries their tensors now: grpc, "
            "local, ring.",
            ["transport"],
            registry=registry,
        )
        self.link_changes = Counter(
            "kakeya_link_changes_total",
            "Changes of what carries a tensor link, by what carries it then and by cause: "
            "faster, forced, peer, slower, fault, idle.",
            ["to", "cause"],
            registry=registry,
        )
        self.link_transport_bytes = Counter(
            "kakeya_link_transport_bytes_total",
            "Bytes of tensors on links, by what carried them and by way: sent, received.",
            ["transport", "way"],
            registry=registry,
        )
        self.link_send_seconds = Histogram(
            "kakeya_link_send_seconds",
            "From a tensor's departure until its receiver said that it has it, by what carried it.",
            ["transport"],
            registry=registry,
            buckets=_SHORT,
        )

    def _restoring(self) -> None:
        registry = self.registry
        self.archives_open = Gauge(
            "kakeya_archives_open", "Archives that sessions have open here.", registry=registry
        )
        self.archive_bytes = Gauge(
            "kakeya_archive_bytes", "Bytes that archives take here.", registry=registry
        )
        self.archive_budget_bytes = Gauge(
            "kakeya_archive_budget_bytes",
            "Bytes that archives may take here together.",
            registry=registry,
        )
        self.archive_positions = Gauge(
            "kakeya_archive_positions", "Evicted positions kept here.", registry=registry
        )
        self.archive_query_seconds = Histogram(
            "kakeya_archive_query_seconds",
            "Attention of a block's queries in one layer, where the archive is.",
            registry=registry,
            buckets=_SHORT,
        )
        self.restorer_round_trip_seconds = Histogram(
            "kakeya_restorer_round_trip_seconds",
            "A layer's wait for its partial attention, as the verifier sees it.",
            registry=registry,
            buckets=_SHORT,
        )
        self.restorer_read_bytes = Counter(
            "kakeya_restorer_read_bytes_total",
            "Keys and values that were read back from archives, to be attended to here.",
            registry=registry,
        )
        self.restorer_faults = Counter(
            "kakeya_restorer_faults_total",
            "Archives that sessions lost, by kind: unreachable, deadline, full, gone, refused, "
            "not_finite, protocol.",
            ["kind"],
            registry=registry,
        )
        self.restorer_rebuilds = Counter(
            "kakeya_restorer_rebuilds_total",
            "Archives made anew for a session, by outcome: rebuilt, lost.",
            ["outcome"],
            registry=registry,
        )

    def _control_plane(self) -> None:
        registry = self.registry
        self.gossip_exchanges = Counter(
            "kakeya_gossip_exchanges_total",
            "Exchanges with peers and probes of them, by result: ok, timeout, unreachable, "
            "refused, malformed.",
            ["result"],
            registry=registry,
        )
        self.gossip_round_trip_seconds = Histogram(
            "kakeya_gossip_round_trip_seconds",
            "Round trip of one exchange.",
            registry=registry,
            buckets=_SHORT,
        )
        self.cards_skipped = Counter(
            "kakeya_cards_skipped_total",
            "Cards of others that were not merged, by the rule that they broke.",
            ["rule"],
            registry=registry,
        )
        self.rumours_skipped = Counter(
            "kakeya_rumours_skipped_total",
            "Statements about liveness that were not merged, by the rule that they broke.",
            ["rule"],
            registry=registry,
        )
        self.members = Gauge(
            "kakeya_members",
            "Nodes of the fleet as known here, this one included, by liveness.",
            ["liveness"],
            registry=registry,
        )
        self.incarnation = Gauge(
            "kakeya_incarnation", "This node's incarnation.", registry=registry
        )
        self.event_loop_lag_seconds = Gauge(
            "kakeya_event_loop_lag_seconds",
            "How late the event loop ran its last gossip period.",
            registry=registry,
        )
        self.watchers_dropped = Counter(
            "kakeya_watchers_dropped_total",
            "Fleet watchers that were ended because they fell behind.",
            registry=registry,
        )


@dataclass(frozen=True, slots=True)
class MetricsServer:
    """A running /metrics endpoint; `address` is host:port as bound."""

    address: str
    server: WSGIServer
    thread: threading.Thread

    def close(self) -> None:
        """Stops the endpoint and waits for its thread."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def serve_metrics(metrics: NodeMetrics, host: str, port: int) -> MetricsServer:
    """Serves `metrics` at http://host:port/metrics in a thread; port 0 takes a free one.

    Raises `PortInUse`.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=metrics.registry)
    except OSError as error:
        raise PortInUse(
            f"the metrics address {host}:{port} cannot be bound ({error.strerror})",
            "choose another with --metrics-bind, or --metrics-bind off",
            address=f"{host}:{port}",
        ) from error
    return MetricsServer(f"{host}:{server.server_port}", server, thread)

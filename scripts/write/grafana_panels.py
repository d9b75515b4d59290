"""The panels of the Grafana dashboard, row by row.

In an expression `@` stands for the selection of fleet and nodes, `$t` for the time that a
rate looks back. A legend names labels as Grafana does: {{node}}.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Query:
    """One expression and what its lines are called."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One chart; `unit` is Grafana's name of it, `most` the end of its axis, if it has one."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    most: float | None = None
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def quantiles(metric: str, shares: Sequence[int], by: str = "") -> tuple[Query, ...]:
    """Percentiles of a histogram, `by` a label beside."""
    kept, tail = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    return tuple(
        Query(
            f"histogram_quantile({share / 100}, sum by ({kept}) (rate({metric}_bucket@[$t])))",
            f"p{share}{tail}",
        )
        for share in shares
    )


def rate(metric: str, *labels: str) -> Query:
    """What a counter gains a second, by labels."""
    names = labels or ("node",)
    legend = " ".join(f"{{{{{name}}}}}" for name in names)
    return Query(f"sum by ({', '.join(names)}) (rate({metric}@[$t]))", legend)


def now(metric: str, *labels: str, name: str = "") -> Query:
    """A gauge, by labels."""
    names = labels or ("node",)
    legend = " ".join(f"{{{{{each}}}}}" for each in names)
    return Query(f"sum by ({', '.join(names)}) ({metric}@)", f"{legend} {name}".strip())


def mean(metric: str, name: str) -> Query:
    """Mean of a histogram over the time that a rate looks back."""
    return Query(
        f"sum(rate({metric}_sum@[$t])) / sum(rate({metric}_count@[$t]))",
        name,
    )


FLEET = Row(
    "Fleet",
    (
        Panel(
            "Nodes",
            "Nodes of the fleet by liveness, as each node knows them. Every node should say the "
            "same within seconds.",
            "short",
            (Query("max by (liveness) (kakeya_members@)", "{{liveness}}"),),
            kind="stat",
        ),
        Panel(
            "Tokens a second, all nodes",
            "Tokens that generations committed.",
            "short",
            (Query("sum(rate(kakeya_tokens_generated_total@[$t]))", "generated"),),
            kind="stat",
        ),
        Panel(
            "Acceptance length, all nodes",
            "Tokens committed per verify forward; 1 is decoding alone.",
            "short",
            (
                Query(
                    "sum(rate(kakeya_tokens_generated_total@[$t])) / "
                    "sum(rate(kakeya_verify_seconds_count@[$t]))",
                    "tokens a forward",
                ),
            ),
            kind="stat",
        ),
        Panel(
            "Memory of the nodes' processes",
            "Resident memory: weights, keys and values, archives and everything else.",
            "bytes",
            (now("kakeya_process_resident_bytes"),),
        ),
        Panel(
            "Gossip round trip",
            "One exchange of cards with one peer. The network between two nodes, without a model.",
            "s",
            quantiles("kakeya_gossip_round_trip_seconds", (50, 99)),
        ),
        Panel(
            "Gossip by result",
            "Exchanges and probes. Timeouts come before a node is suspected.",
            "ops",
            (rate("kakeya_gossip_exchanges_total", "result"),),
            stacked=True,
        ),
        Panel(
            "Event loop lag",
            "How late a node's event loop ran its last gossip period. Past a second, peers suspect "
            "it.",
            "s",
            (now("kakeya_event_loop_lag_seconds"),),
        ),
        Panel(
            "Incarnations",
            "A node's number of starts. A step is a restart.",
            "short",
            (now("kakeya_incarnation"),),
        ),
    ),
)

SESSIONS = Row(
    "Sessions",
    (
        Panel(
            "Sessions open and generating",
            "Sessions that hold a history, and those among them that generate.",
            "short",
            (
                now("kakeya_sessions_active", name="open"),
                now("kakeya_sessions_generating", name="generating"),
            ),
        ),
        Panel(
            "Tokens a second",
            "Committed by generations, and appended tokens whose keys and values were computed.",
            "short",
            (
                Query(
                    "sum by (node) (rate(kakeya_tokens_generated_total@[$t]))", "{{node}} generated"
                ),
                Query(
                    "sum by (node) (rate(kakeya_tokens_prefilled_total@[$t]))", "{{node}} prefilled"
                ),
            ),
        ),
        Panel(
            "Time to first token",
            "From the request to the first committed token, its wait and its prefill included.",
            "s",
            quantiles("kakeya_time_to_first_token_seconds", (50, 95, 99)),
        ),
        Panel(
            "Time between tokens",
            "Tokens of one block share the time of their block.",
            "s",
            quantiles("kakeya_inter_token_seconds", (50, 95, 99)),
        ),
        Panel(
            "Keys and values",
            "Bytes allocated, and the bytes that sessions may take. At the budget new sessions are "
            "refused or idle ones evicted.",
            "bytes",
            (
                now("kakeya_kv_bytes", name="allocated"),
                now("kakeya_kv_budget_bytes", name="budget"),
            ),
        ),
        Panel(
            "History tokens",
            "Tokens in the histories of all open sessions. Keys and values of sessions with a "
            "window do not grow with them.",
            "short",
            (now("kakeya_history_tokens"),),
        ),
        Panel(
            "History at a session's end",
            "How long sessions become.",
            "short",
            quantiles("kakeya_session_history_tokens", (50, 95)),
        ),
        Panel(
            "History that generations continue",
            "Tokens in the history when a generation begins.",
            "short",
            quantiles("kakeya_generation_history_tokens", (50, 95)),
        ),
        Panel(
            "Forgotten",
            "Tokens a second that no query sees any more, and sessions that began to forget: their "
            "history outgrew sink and window, and nothing restores it.",
            "short",
            (
                Query(
                    "sum by (node) (rate(kakeya_forgotten_tokens_total@[$t]))", "{{node}} tokens"
                ),
                Query(
                    "sum by (node) (increase(kakeya_truncated_sessions_total@[$t]))",
                    "{{node}} sessions",
                ),
            ),
        ),
        Panel(
            "Sessions opened and ended",
            "Ended ones by outcome; forks count as opened.",
            "ops",
            (
                Query("sum(rate(kakeya_sessions_opened_total@[$t]))", "opened"),
                rate("kakeya_sessions_total", "outcome"),
            ),
        ),
        Panel(
            "Evictions",
            "Sessions that were idle past their time to live (ttl), or whose memory another one "
            "needed (memory).",
            "ops",
            (rate("kakeya_session_evictions_total", "reason"),),
            stacked=True,
        ),
        Panel(
            "Generations by their end",
            "left: cancelled by the client, or failed.",
            "ops",
            (rate("kakeya_generations_total", "end"),),
            stacked=True,
        ),
        Panel(
            "Wait for the turn",
            "One operation a session at a time: a second one waits for the first.",
            "s",
            quantiles("kakeya_generation_queue_seconds", (50, 99)),
        ),
        Panel(
            "Prefill time",
            "Seconds a second that nodes spend on appended tokens, and their cost a token.",
            "s",
            (
                Query("sum by (node) (rate(kakeya_prefill_seconds_total@[$t]))", "{{node}} busy"),
                Query(
                    "sum(rate(kakeya_prefill_seconds_total@[$t])) / "
                    "sum(rate(kakeya_tokens_prefilled_total@[$t]))",
                    "a token",
                ),
            ),
        ),
        Panel(
            "Tokens of a prefill",
            "How much one append brings.",
            "short",
            quantiles("kakeya_prefill_tokens", (50, 95)),
        ),
        Panel(
            "Time of a prefill",
            "From an append's first forward to its last, waits for other sessions' turns included.",
            "s",
            quantiles("kakeya_prefill_duration_seconds", (50, 95, 99)),
        ),
    ),
)

SPECULATION = Row(
    "Speculation",
    (
        Panel(
            "Acceptance rate",
            "Accepted over drafted tokens, and over tried ones: those behind a mismatch are never "
            "tried.",
            "percentunit",
            (
                Query(
                    "sum(rate(kakeya_spec_decode_num_accepted_tokens_total@[$t])) / "
                    "sum(rate(kakeya_spec_decode_num_draft_tokens_total@[$t]))",
                    "of drafted",
                ),
                Query(
                    "sum(rate(kakeya_spec_decode_num_accepted_tokens_total@[$t])) / "
                    "sum(rate(kakeya_spec_decode_num_tried_tokens_total@[$t]))",
                    "of tried",
                ),
            ),
            most=1.0,
        ),
        Panel(
            "Acceptance length",
            "Tokens committed per verify forward, a generation.",
            "short",
            (
                mean("kakeya_acceptance_length", "mean"),
                *quantiles("kakeya_acceptance_length", (90,)),
            ),
        ),
        Panel(
            "Where a block's time goes",
            "Means. The verifier waits less than draft and wire together when blocks are drafted "
            "ahead.",
            "s",
            (
                mean("kakeya_draft_seconds", "draft"),
                mean("kakeya_draft_wire_seconds", "wire"),
                mean("kakeya_draft_wait_seconds", "wait"),
                mean("kakeya_verify_seconds", "verify"),
            ),
        ),
        Panel(
            "Draft round trip",
            "To a remote proposer and back, its own time included. Past the deadline a draft is a "
            "fault.",
            "s",
            quantiles("kakeya_draft_round_trip_seconds", (50, 99)),
        ),
        Panel(
            "Blocks drafted",
            "Blocks with drafted tokens that were verified, and draft streams that are served.",
            "short",
            (
                Query(
                    "sum by (node) (rate(kakeya_spec_decode_num_drafts_total@[$t]))",
                    "{{node}} blocks a second",
                ),
                now("kakeya_draft_streams_active", name="streams"),
            ),
        ),
        Panel(
            "Faults of proposers",
            "Each costs speed, never a token.",
            "ops",
            (rate("kakeya_draft_faults_total", "kind"),),
            stacked=True,
        ),
        Panel(
            "Generations without their proposer",
            "Why they ended alone. slower_than_alone is the pace at work, no fault.",
            "ops",
            (rate("kakeya_proposer_drops_total", "reason"),),
            stacked=True,
        ),
    ),
)

LINKS = Row(
    "Links",
    (
        Panel(
            "What carries the links",
            "Ends of tensor links by transport: gRPC, shared memory of one host, a ring.",
            "short",
            (
                now("kakeya_link_transports", "transport"),
                Query("sum(kakeya_links_active@)", "served here"),
            ),
        ),
        Panel(
            "Bytes on links",
            "By what carried them, and by way.",
            "Bps",
            (
                rate("kakeya_link_transport_bytes_total", "transport", "way"),
                Query("sum(rate(kakeya_link_bytes_total@[$t]))", "arrived, refused ones too"),
            ),
        ),
        Panel(
            "Changes of transport",
            "By what carries the link then and by cause. fault: a road failed and the link went on "
            "over gRPC, without a lost tensor.",
            "ops",
            (rate("kakeya_link_changes_total", "to", "cause"),),
            stacked=True,
        ),
        Panel(
            "Time of a tensor",
            "From its departure until the receiver said that it has it.",
            "s",
            quantiles("kakeya_link_send_seconds", (50, 99), by="transport"),
        ),
        Panel(
            "Links opened, tensors refused",
            "Refused ones were corrupt, not finite, of a wrong shape or out of order.",
            "ops",
            (
                Query("sum(rate(kakeya_links_opened_total@[$t]))", "opened"),
                rate("kakeya_tensors_refused_total", "fault"),
            ),
        ),
    ),
)

ARCHIVES = Row(
    "Archives",
    (
        Panel(
            "Archive memory",
            "Bytes that archives take on a node, and may take.",
            "bytes",
            (
                now("kakeya_archive_bytes", name="taken"),
                now("kakeya_archive_budget_bytes", name="budget"),
            ),
        ),
        Panel(
            "Archives and positions",
            "Archives that sessions have open, and the evicted positions that they keep.",
            "short",
            (
                now("kakeya_archives_open", name="open"),
                now("kakeya_archive_positions", name="positions"),
            ),
        ),
        Panel(
            "Attention at the archive",
            "One layer of one block, where the archive computes, and as the verifier waits for it.",
            "s",
            (
                *quantiles("kakeya_archive_query_seconds", (99,)),
                mean("kakeya_archive_query_seconds", "mean at the archive"),
                mean("kakeya_restorer_round_trip_seconds", "mean wait of the verifier"),
            ),
        ),
        Panel(
            "Archives lost and made anew",
            "A lost archive is rebuilt from the history, with the same stream; lost: no other was "
            "found in time.",
            "ops",
            (
                rate("kakeya_restorer_faults_total", "kind"),
                rate("kakeya_restorer_rebuilds_total", "outcome"),
            ),
        ),
    ),
)

ERRORS = Row(
    "Errors and HTTP",
    (
        Panel(
            "Calls that failed",
            "By the reason of the error; docs/troubleshooting.md has the mend of each.",
            "ops",
            (rate("kakeya_rpc_errors_total", "reason"),),
            stacked=True,
        ),
        Panel(
            "Faults in the background",
            "Of what nodes do besides calls; they begin again. The node's log has the cause.",
            "ops",
            (rate("kakeya_background_faults_total", "task"),),
            stacked=True,
        ),
        Panel(
            "Connections ended",
            "By nodes that were short of descriptors. Somebody holds many, or the limit is low.",
            "ops",
            (rate("kakeya_connections_ended_total"),),
        ),
        Panel(
            "Bounds that are nearly reached",
            "Taken of each bound, of 1; `fleet limits` says what they are and why.",
            "percentunit",
            (
                Query(
                    "max by (limit) (kakeya_admission_used@ / kakeya_admission_limit@)",
                    "{{limit}}",
                ),
            ),
        ),
        Panel(
            "Refused for want of a place",
            "By bound and by why: full, or the caller holds more than others of what is scarce.",
            "ops",
            (
                rate("kakeya_admission_refused_total", "limit", "reason"),
                rate("kakeya_admission_reclaimed_total", "limit"),
            ),
            stacked=True,
        ),
        Panel(
            "Invariant violations",
            "Broken promises that ended a session. Any is a bug: please report it.",
            "short",
            (
                Query(
                    "sum by (kind) (increase(kakeya_invariant_violations_total@[1h]))", "{{kind}}"
                ),
            ),
            kind="stat",
        ),
        Panel(
            "Statements of peers that were skipped",
            "Cards and rumours that broke a rule: another version, or somebody hostile.",
            "ops",
            (
                rate("kakeya_cards_skipped_total", "rule"),
                rate("kakeya_rumours_skipped_total", "rule"),
            ),
        ),
        Panel(
            "HTTP requests",
            "By route and status.",
            "reqps",
            (rate("kakeya_http_requests_total", "route", "status"),),
            stacked=True,
        ),
        Panel(
            "HTTP time",
            "From a request's arrival to the end of its answer; a streamed one ends with its last "
            "token.",
            "s",
            quantiles("kakeya_http_request_seconds", (50, 99), by="route"),
        ),
        Panel(
            "Streams and watchers",
            "HTTP answers that are being streamed; watchers that were ended because they fell "
            "behind; spans sent to the collector of traces, and dropped.",
            "short",
            (
                now("kakeya_http_streams_active", name="streams"),
                Query("sum(rate(kakeya_watchers_dropped_total@[$t]))", "watchers dropped a second"),
                rate("kakeya_trace_spans_total", "fate"),
            ),
        ),
    ),
)

ROWS = (FLEET, SESSIONS, SPECULATION, LINKS, ARCHIVES, ERRORS)

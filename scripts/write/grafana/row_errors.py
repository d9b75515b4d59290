"""The row Errors and HTTP: what is refused, fails or is bounded."""

from scripts.write.grafana.panel import Panel, Query, Row, now, quantiles, rate

ROW = Row(
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
            "Stalls of the event loop",
            "Of each second, the part in which a node answered nothing, by why: computing, waiting "
            "or machine, when no core was free. Its events name the step.",
            "percentunit",
            (rate("kakeya_event_loop_stall_seconds_sum", "node", "cause"),),
            stacked=True,
        ),
        Panel(
            "Length of stalls",
            "Of turns of more than 0.1 s. At half a gossip period peers begin to doubt the node.",
            "s",
            quantiles("kakeya_event_loop_stall_seconds", (50, 99), by="cause"),
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
            "Cards and rumours that broke a rule, and calls that others wanted too many of: "
            "another version, or somebody hostile.",
            "ops",
            (
                rate("kakeya_dials_refused_total"),
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

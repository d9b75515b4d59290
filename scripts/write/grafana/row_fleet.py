"""The row Fleet: who is there, and how the nodes themselves fare."""

from scripts.write.grafana.panel import Panel, Query, Row, now, quantiles, rate

ROW = Row(
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
            "Cores in use",
            "Share of the cores that a node may run on: what programs of its machine keep busy, "
            "and what the node's process has. Nodes of one machine tell of the same cores.",
            "percentunit",
            (
                now("kakeya_cpu_used_ratio", name="machine"),
                now("kakeya_process_cpu_used_ratio", name="node"),
            ),
            most=1,
        ),
        Panel(
            "Cores of the nodes' processes",
            "Seconds of cores a second: 1 is one core all the time. Without the ranks of a group.",
            "short",
            (rate("kakeya_process_cpu_seconds_total"),),
        ),
        Panel(
            "Accelerators in use",
            "Share of the time in which one had work of any program, where its driver tells it.",
            "percentunit",
            (now("kakeya_accelerator_used_ratio"),),
            most=1,
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

"""The row Links: what carries tensors between nodes."""

from scripts.write.grafana.panel import Panel, Query, Row, now, quantiles, rate

ROW = Row(
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

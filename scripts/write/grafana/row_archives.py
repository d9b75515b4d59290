"""The row Archives: what keeps evicted keys and values."""

from scripts.write.grafana.panel import Panel, Row, mean, now, quantiles, rate

ROW = Row(
    "Archives",
    (
        Panel(
            "Archive memory",
            "Bytes that archives take on a node, may take, and save by packing.",
            "bytes",
            (
                now("kakeya_archive_bytes", name="taken"),
                now("kakeya_archive_budget_bytes", name="budget"),
                now("kakeya_archive_saved_bytes", name="saved by packing"),
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
        Panel(
            "Answers of archives, spot-checked",
            "Computed again by the verifier of what the archive gives back. failed: it lied, or "
            "its memory did. rounded: near enough, of other bits. no_room: not looked at.",
            "ops",
            (rate("kakeya_restorer_audits_total", "outcome"),),
        ),
    ),
)

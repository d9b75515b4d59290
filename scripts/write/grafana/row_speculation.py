"""The row Speculation: what drafting gives and takes."""

from scripts.write.grafana.panel import Panel, Query, Row, mean, now, quantiles, rate

ROW = Row(
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
            "Hedges",
            "Blocks asked of a second proposer, the first being late: at most one draft in twenty. "
            "Many that win tell of a proposer whose machine or network is busy.",
            "ops",
            (rate("kakeya_draft_hedges_total", "outcome"),),
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

"""The row Sessions: histories, what they cost, and how they end."""

from scripts.write.grafana.panel import Panel, Query, Row, now, quantiles, rate

ROW = Row(
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
            "Bytes allocated, those of them packed, what packing saves, and the bytes that "
            "sessions may take. At the budget idle sessions rest, or new ones are refused.",
            "bytes",
            (
                now("kakeya_kv_bytes", name="allocated"),
                now("kakeya_kv_packed_bytes", name="packed"),
                now("kakeya_kv_saved_bytes", name="saved by packing"),
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
            "Sessions that rest",
            "Idle sessions that gave their memory to others and stay open, and the tokens that "
            "were computed again when they went on.",
            "ops",
            (
                Query("sum(rate(kakeya_session_rests_total@[$t]))", "rests"),
                Query("sum(rate(kakeya_sessions_shrunk_total@[$t]))", "packed for want of memory"),
                Query("sum(rate(kakeya_tokens_recomputed_total@[$t]))", "tokens computed again"),
            ),
        ),
        Panel(
            "Divergence of packed sessions",
            "How far each codec moves the choices of this fleet's models, as idle nodes measured "
            "it: high bears 0.005 nats, economy 0.02.",
            "short",
            (
                Query(
                    "max by (model, codec) (kakeya_codec_divergence_nats@)", "{{model}} {{codec}}"
                ),
            ),
        ),
        Panel(
            "Measured positions of packed sessions",
            "Positions that codecs were measured on, and measurements that gave way to sessions "
            "or failed.",
            "ops",
            (
                Query("sum(rate(kakeya_codec_samples_total@[$t]))", "positions"),
                Query("sum(rate(kakeya_codec_samplings_given_up_total@[$t]))", "given up"),
            ),
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

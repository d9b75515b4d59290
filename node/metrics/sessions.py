"""Metrics of sessions and of the keys and values that they take."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import (
    DOUBLING_TOKENS,
    HISTORY_TOKENS,
    LONG_SECONDS,
    SHORT_SECONDS,
)
from kakeya_fleet.node.metrics.tallied_histogram import TalliedHistogram


class SessionFamilies:
    """What sessions are, do and cost; see each metric's own text."""

    def __init__(self, registry: CollectorRegistry) -> None:
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
            "kakeya_sessions_opened_total",
            "Sessions that were opened or forked.",
            registry=registry,
        )
        self.codec_divergence = Gauge(
            "kakeya_codec_divergence_nats",
            "Mean divergence of packed sessions' choices from unpacked ones, measured here.",
            ["model", "codec"],
            registry=registry,
        )
        self.codec_samples = Counter(
            "kakeya_codec_samples_total",
            "Positions that codecs were measured on.",
            registry=registry,
        )
        self.codec_samplings_given_up = Counter(
            "kakeya_codec_samplings_given_up_total",
            "Measurements of codecs that gave way to other work, or failed.",
            registry=registry,
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
        self.rests = Counter(
            "kakeya_session_rests_total",
            "Sessions that gave their keys and values back, for others to use, and stay open.",
            registry=registry,
        )
        self.sessions_shrunk = Counter(
            "kakeya_sessions_shrunk_total",
            "Sessions that were packed since memory was short, as they allowed.",
            registry=registry,
        )
        self.tokens_recomputed = Counter(
            "kakeya_tokens_recomputed_total",
            "Tokens whose keys and values were computed once more: their session had rested, or "
            "what it had evicted was lost.",
            registry=registry,
        )
        self.invariant_violations = Counter(
            "kakeya_invariant_violations_total",
            "Broken promises that ended a session, by kind.",
            ["kind"],
            registry=registry,
        )
        self._memory(registry)
        self._tokens(registry)
        self._generations(registry)

    def _memory(self, registry: CollectorRegistry) -> None:
        self.kv_bytes = Gauge(
            "kakeya_kv_bytes", "Bytes of keys and values allocated.", registry=registry
        )
        self.kv_budget_bytes = Gauge(
            "kakeya_kv_budget_bytes", "Bytes that sessions may take together.", registry=registry
        )
        self.kv_packed_bytes = Gauge(
            "kakeya_kv_packed_bytes",
            "Those of kakeya_kv_bytes that full sessions keep packed.",
            registry=registry,
        )
        self.kv_saved_bytes = Gauge(
            "kakeya_kv_saved_bytes",
            "Bytes that the same positions would take more if they were not packed.",
            registry=registry,
        )
        self.history_tokens = Gauge(
            "kakeya_history_tokens",
            "Tokens in the histories of all open sessions.",
            registry=registry,
        )
        self.session_history_tokens = Histogram(
            "kakeya_session_history_tokens",
            "Tokens in a session's history when it ended.",
            registry=registry,
            buckets=HISTORY_TOKENS,
        )
        self.truncated_sessions = Counter(
            "kakeya_truncated_sessions_total",
            "Sessions that began to forget: the history outgrew sink and window, and nothing "
            "restores it.",
            registry=registry,
        )
        self.forgotten_tokens = Counter(
            "kakeya_forgotten_tokens_total",
            "Tokens of histories that no query sees any more.",
            registry=registry,
        )

    def _tokens(self, registry: CollectorRegistry) -> None:
        self.tokens_generated = Counter(
            "kakeya_tokens_generated_total", "Tokens committed by generations.", registry=registry
        )
        self.tokens_prefilled = Counter(
            "kakeya_tokens_prefilled_total",
            "Appended tokens whose keys and values were computed.",
            registry=registry,
        )
        self.prefill_seconds = Counter(
            "kakeya_prefill_seconds_total",
            "Seconds in which keys and values of appended tokens were computed, all sessions' "
            "added.",
            registry=registry,
        )
        self.prefill_tokens = Histogram(
            "kakeya_prefill_tokens",
            "Tokens that one append, or a generation before its first block, computed.",
            registry=registry,
            buckets=DOUBLING_TOKENS,
        )
        self.prefill_duration_seconds = Histogram(
            "kakeya_prefill_duration_seconds",
            "What computing the tokens of one append took, waits for turns included.",
            registry=registry,
            buckets=LONG_SECONDS,
        )

    def _generations(self, registry: CollectorRegistry) -> None:
        self.generations = Counter(
            "kakeya_generations_total",
            "Generations that ended, by how: max_tokens, stop_token, complete, deadline, "
            "context_full, draining, or left: cancelled by the client, or failed.",
            ["end"],
            registry=registry,
        )
        self.generation_history_tokens = Histogram(
            "kakeya_generation_history_tokens",
            "Tokens in the history that a generation continues, when it begins.",
            registry=registry,
            buckets=DOUBLING_TOKENS,
        )
        self.queue_seconds = Histogram(
            "kakeya_generation_queue_seconds",
            "A generation's wait for its session's turn.",
            registry=registry,
            buckets=LONG_SECONDS,
        )
        self.time_to_first_token_seconds = Histogram(
            "kakeya_time_to_first_token_seconds",
            "From the request to the first committed token.",
            registry=registry,
            buckets=LONG_SECONDS,
        )
        self.inter_token_seconds = TalliedHistogram(
            "kakeya_inter_token_seconds",
            "Time a token took after the one before; tokens of one block share their block's.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )

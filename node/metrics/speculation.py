"""Metrics of drafts: what was drafted, what became of it, and where the seconds went."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kakeya_fleet.node.metrics.buckets import SHORT_SECONDS, TOKENS_A_FORWARD
from kakeya_fleet.node.metrics.tallied_histogram import TalliedHistogram


class SpeculationFamilies:
    """Counters for acceptance as a ratio, and histograms of a block's parts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.drafts = Counter(
            "kakeya_spec_decode_num_drafts_total",
            "Blocks with drafted tokens that were verified.",
            registry=registry,
        )
        self.draft_tokens = Counter(
            "kakeya_spec_decode_num_draft_tokens_total",
            "Drafted tokens that were verified.",
            registry=registry,
        )
        self.tried_tokens = Counter(
            "kakeya_spec_decode_num_tried_tokens_total",
            "Drafted tokens that were compared: those behind a mismatch never are.",
            registry=registry,
        )
        self.accepted_tokens = Counter(
            "kakeya_spec_decode_num_accepted_tokens_total",
            "Drafted tokens that were accepted.",
            registry=registry,
        )
        self.acceptance_length = Histogram(
            "kakeya_acceptance_length",
            "Tokens committed per verify forward, a generation.",
            registry=registry,
            buckets=TOKENS_A_FORWARD,
        )
        self.draft_faults = Counter(
            "kakeya_draft_faults_total",
            "Faults of proposers that a session survived, by kind.",
            ["kind"],
            registry=registry,
        )
        self.proposer_drops = Counter(
            "kakeya_proposer_drops_total",
            "Generations that ended without their proposer, by why: unreachable, deadline, "
            "wrong_length, out_of_vocabulary, stale, features, slower_than_alone.",
            ["reason"],
            registry=registry,
        )
        self.draft_hedges = Counter(
            "kakeya_draft_hedges_total",
            "Blocks that were asked of a second proposer too, the first being late, by whose draft "
            "came first: won, or lost.",
            ["outcome"],
            registry=registry,
        )
        self.draft_streams_active = Gauge(
            "kakeya_draft_streams_active", "Draft streams that are served.", registry=registry
        )
        self._seconds(registry)

    def _seconds(self, registry: CollectorRegistry) -> None:
        self.draft_seconds = TalliedHistogram(
            "kakeya_draft_seconds",
            "The proposer's own time for one block.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self.draft_wire_seconds = TalliedHistogram(
            "kakeya_draft_wire_seconds",
            "The rest of a draft's round trip: messages and queues.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self.draft_wait_seconds = TalliedHistogram(
            "kakeya_draft_wait_seconds",
            "What the verifier waited for a block's draft; 0 when it was drafted ahead in time.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self.draft_round_trip_seconds = Histogram(
            "kakeya_draft_round_trip_seconds",
            "A draft's way to the proposer and back, its compute time included.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )
        self.verify_seconds = TalliedHistogram(
            "kakeya_verify_seconds",
            "One verify forward with choosing the tokens.",
            registry=registry,
            buckets=SHORT_SECONDS,
        )

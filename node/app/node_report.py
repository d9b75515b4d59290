"""What this node says of itself on request: card, ways, load, acceptance, seed peers."""

from __future__ import annotations

import errno
import time

from kakeya.v1 import capability_pb2
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.node.app.codec_report import CodecReport
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.membership.card_wire import card_to_wire
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.seed_watch import SeedWatch
from kakeya_fleet.node.watch.accelerator_use import AcceleratorUse
from kakeya_fleet.node.watch.cpu_use import CpuMeter
from kakeya_fleet.node.watch.node_sample import Levels, Totals

FRESH_SECONDS = 0.5
"""A reading of the machine's memory counts so long."""


class NodeReport:
    """Makes GetNodeResponse, and what samples are made of.

    `http_address` is host:port, empty without HTTP; `started_at_unix` in seconds since 1970.
    `codecs` says what was measured of them.
    """

    def __init__(
        self,
        known: KnownFleet,
        roles: Roles,
        seeds: SeedWatch,
        http_address: str,
        started_at_unix: float,
        accelerator: AcceleratorUse,
    ) -> None:
        self._known = known
        self._roles = roles
        self.codecs = CodecReport(roles)
        self._seeds = seeds
        self._http_address = http_address
        self._started_at_unix = started_at_unix
        self._accelerator = accelerator
        self._cpu = CpuMeter()
        self._memory_read = system_memory.available_bytes()
        self._memory_read_at = time.monotonic()

    def now(self) -> capability_pb2.GetNodeResponse:
        """The node as it is now."""
        own = self._known.state(self._known.self_id)
        return capability_pb2.GetNodeResponse(
            card=card_to_wire(own.card) if own.card else None,
            links=self._links(),
            load=self._load(),
            acceptances=self._acceptances(),
            metrics_address=self._http_address,
            http_address=self._http_address,
            draining=self._roles.draining,
            tensor_links=self._roles.tensor_links(),
            started_at_unix=self._started_at_unix,
            seed_faults=self._seeds.to_wire(),
        )

    def totals(self) -> Totals:
        """What the node did since its start."""
        return self._roles.totals()

    def levels(self) -> Levels:
        """What it holds now; how busy its cores were since the last call."""
        load = self._roles.load_numbers()
        return Levels(
            session_count=load.session_count,
            generating_count=load.generating_count,
            draft_stream_count=load.draft_stream_count,
            kv_bytes=load.kv_bytes,
            memory_free_bytes=self._memory_free(),
            archive_bytes=load.archive_bytes,
            cpu=self._cpu.look(),
            accelerator_share=self._accelerator.look(),
        )

    def _links(self) -> list[capability_pb2.PeerLink]:
        shut_out: dict[str, list[str]] = {}
        for node_id, model_id in sorted(self._roles.open_breakers()):
            shut_out.setdefault(node_id, []).append(model_id)
        waits = self._roles.archive_waits()
        return [
            capability_pb2.PeerLink(
                node_id=state.node_id,
                round_trip_seconds=state.round_trip_seconds,
                breaker_open=state.node_id in shut_out,
                archive_wait_seconds=waits.get(state.node_id, 0.0),
                address=self._known.way(state.node_id),
                breaker_open_models=shut_out.get(state.node_id, ()),
            )
            for state in self._known.states()
            if not state.is_self and state.round_trip_seconds > 0
        ]

    def _load(self) -> capability_pb2.NodeLoad:
        load = self._roles.load_numbers()
        return capability_pb2.NodeLoad(
            session_count=load.session_count,
            generating_count=load.generating_count,
            draft_stream_count=load.draft_stream_count,
            kv_bytes=load.kv_bytes,
            kv_budget_bytes=load.kv_budget_bytes,
            memory_free_bytes=self._memory_free(),
            archive_count=load.archive_count,
            archive_bytes=load.archive_bytes,
            archive_budget_bytes=load.archive_budget_bytes,
            cpu_share=self._cpu.latest.host,
            process_cpu_share=self._cpu.latest.own,
        )

    def _memory_free(self) -> int:
        """Bytes, as of `FRESH_SECONDS` ago at most: reading them takes some ten files.

        Those of the last reading while connections take all files that may be open.
        """
        now = time.monotonic()
        if now < self._memory_read_at + FRESH_SECONDS:
            return self._memory_read
        try:
            self._memory_read = system_memory.available_bytes()
            self._memory_read_at = now
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        return self._memory_read

    def _acceptances(self) -> list[capability_pb2.MeasuredAcceptance]:
        return [
            capability_pb2.MeasuredAcceptance(
                verifier_model_id=verifier,
                proposer_model_id=proposer,
                acceptance_rate=measured.acceptance_rate,
                drafted_count=measured.drafted_count,
                acceptance_rate_low=measured.low,
                acceptance_rate_high=measured.high,
                session_count=measured.session_count,
            )
            for (verifier, proposer), measured in self._roles.acceptances().items()
        ]

"""What of a node's report people notice: the rest trembles all the time."""

from __future__ import annotations

import math

from kakeya.v1 import capability_pb2 as wire


def notable_part(report: wire.GetNodeResponse) -> bytes:
    """Equal for reports that differ in nothing that is worth telling.

    Left out are how old things are, how much went through them, and bytes of memory and shares
    of cores, which every sample has. Round trips, waits and rates are told apart by factors of
    the square root of 2, acceptance by hundredths.
    """
    told = wire.GetNodeResponse()
    told.CopyFrom(report)
    told.card.sequence = 0
    told.card.announced_at_unix = 0.0
    told.card.memory_free_bytes = 0
    for link in told.links:
        link.round_trip_seconds = _coarse(link.round_trip_seconds)
        link.archive_wait_seconds = _coarse(link.archive_wait_seconds)
    for seed in told.seed_faults:
        seed.since_seconds = 0.0
        seed.attempt_count = 0
    told.load.memory_free_bytes = told.load.kv_bytes = told.load.archive_bytes = 0
    told.load.ClearField("cpu_share")
    told.load.ClearField("process_cpu_share")
    for measured in told.acceptances:
        measured.acceptance_rate = round(measured.acceptance_rate, 2)
        measured.drafted_count = 0
    for tensors in told.tensor_links:
        tensors.bytes_per_second = _coarse(tensors.bytes_per_second)
        tensors.changed_seconds_ago = 0.0
        tensors.tensor_count = 0
        tensors.byte_count = 0
    return told.SerializeToString(deterministic=True)


def _coarse(value: float) -> float:
    return float(round(2 * math.log2(value))) if value > 0.0 else -math.inf

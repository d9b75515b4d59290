"""Whether a node has memory left, of its machine's and of its container's."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, ok
from kakeya_fleet.fleet.quantities import bytes_text

CHECK = "memory"

SCARCE_BYTES = 512 << 20
SCARCE_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a process may have, and that it can take now.

    `machine_bytes` is the machine's memory: more than `total_bytes` where a container's limit
    holds.
    """

    machine_bytes: int
    total_bytes: int
    available_bytes: int


def memory(memory: Memory) -> Finding:
    """Whether there is some left."""
    is_limited = memory.total_bytes < memory.machine_bytes
    of = "the container's limit of " if is_limited else ""
    free = f"{bytes_text(memory.available_bytes)} of {of}{bytes_text(memory.total_bytes)} free"
    if is_limited:
        free += f" (the machine has {bytes_text(memory.machine_bytes)})"
    if memory.available_bytes >= max(SCARCE_BYTES, SCARCE_SHARE * memory.total_bytes):
        return ok(CHECK, free)
    return Finding(
        CHECK,
        Level.WARNING,
        f"little memory is left: {free}",
        "Beyond it the process is killed." if is_limited else "Beyond it the machine swaps.",
        "End what else runs, give the container more (--memory), or serve less: a smaller model, "
        "kv_budget_bytes, a smaller --serve archive=AMOUNT.",
    )

"""Whether a node can carry tensors over an mlx.distributed ring, and why not."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, ok

CHECK = "ring"


@dataclass(frozen=True, slots=True)
class RingFacts:
    """What is known of a node's ring. `links` is its setting, empty for auto.

    `age_seconds` is how long the node has been running: it tries its ring seconds after it serves
    something for the first time.
    """

    ring_address: str
    links: str
    has_mlx: bool
    has_ipv4: bool
    serves: bool
    age_seconds: float


TRIAL_SECONDS = 60.0
"""A trial takes 20 s at most, and begins some seconds after the node answers."""


def ring(facts: RingFacts) -> Finding:
    """Whether the card offers a ring; links go over gRPC or shared memory without one."""
    if facts.ring_address:
        return ok(CHECK, f"the probe worked; a ring is offered at {facts.ring_address}")
    if facts.links in ("grpc", "local"):
        return ok(CHECK, f"none, as --links {facts.links} says")
    if not facts.has_ipv4:
        return ok(CHECK, "none: the card has no IPv4 address, and MLX's ring speaks no other")
    if not facts.has_mlx:
        return ok(CHECK, "none: MLX is not installed here; links take gRPC or shared memory")
    if not facts.serves:
        return ok(CHECK, "none: who serves nothing carries no tensors; tried with the first model")
    if facts.age_seconds < TRIAL_SECONDS:
        return ok(CHECK, "none yet: a node tries it in its first minute")
    return Finding(
        CHECK,
        Level.WARNING,
        "no ring is offered, though MLX is installed",
        "The probe, a ring of two processes on this machine alone, did not work (the agent's log "
        "says why, `no_ring`), or what the node serves came within this minute.",
        "Start the agent again and see that line, or join with --links grpc to do without. Links "
        "take gRPC or shared memory meanwhile.",
    )

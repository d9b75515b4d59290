"""Whether models compute with as many threads as there are cores for them, and alike.

Where threads share a product, the place at which their shares end may select another kernel, and
with it another rounding: nodes that serve the same weights agree bit for bit for sure only
with the same number of threads, and with the same libraries on processors of the same
instructions. Each card says how many its verifier takes, and by what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, ok

CHECK = "threads"


@dataclass(frozen=True, slots=True)
class Threads:
    """Cores that a process may run on, and its OMP_NUM_THREADS, empty when it is not set."""

    core_count: int
    omp_num_threads: str


@dataclass(frozen=True, slots=True)
class VerifierThreads:
    """What rounds a verifier's numbers, as its node's card says; 0 and empty where it does not."""

    node: str
    weights: str
    """Names the weights: equal for verifiers that can go on for each other."""
    model: str
    count: int
    arithmetic: str = ""
    format: str = ""
    """What its weights are taken as: those of others are other numbers."""


def threads(own: Threads) -> Finding:
    """Whether OMP_NUM_THREADS fits the cores."""
    cores = counted(own.core_count, "core")
    given = own.omp_num_threads
    if not given:
        return ok(CHECK, f"{cores}; OMP_NUM_THREADS is not set, so torch takes what it finds")
    # OpenMP takes a list too, a number for each level of nesting.
    first = given.split(",")[0].strip()
    if not (first.isascii() and first.isdigit() and int(first) > 0):
        return Finding(
            CHECK,
            Level.WARNING,
            f"OMP_NUM_THREADS is {given!r}, which is no number",
            "OpenMP passes over it and takes all cores.",
            "Set it to a number of cores, or unset it, and start the agent again.",
        )
    if int(first) > own.core_count:
        return Finding(
            CHECK,
            Level.WARNING,
            f"OMP_NUM_THREADS is {first}, on {cores}",
            "More threads than cores wait for each other in each step of a model.",
            f"Set OMP_NUM_THREADS to {own.core_count} or less, or unset it, and start the agent "
            "again.",
        )
    return ok(CHECK, f"{cores}; OMP_NUM_THREADS is {first}")


def verifier_threads(verifiers: Sequence[VerifierThreads]) -> list[Finding]:
    """A line for each model that is served with different numbers of threads."""
    lines = []
    for weights in dict.fromkeys(each.weights for each in verifiers if each.weights):
        alike = [each for each in verifiers if each.weights == weights]
        same = [each for each in alike if each.count]
        if len({each.count for each in same}) > 1:
            told = ", ".join(f"{each.count} on {each.node}" for each in same)
            lines.append(
                Finding(
                    CHECK,
                    Level.WARNING,
                    f"{same[0].model} computes with different numbers of threads: {told}",
                    "Other numbers may round otherwise: a lost session goes on where as many "
                    "compute first, and elsewhere its answer may differ from then on.",
                    "Start those agents with the same OMP_NUM_THREADS if sessions are to go on "
                    "bit for bit.",
                )
            )
        # Also of those that compute the same with any number of threads, and tell none.
        lines += _other_arithmetic([each for each in alike if each.arithmetic])
    return lines


def _other_arithmetic(same: Sequence[VerifierThreads]) -> list[Finding]:
    """A line for each format in which verifiers of the same weights compute otherwise."""
    lines = []
    for form in dict.fromkeys(each.format for each in same):
        alike = [each for each in same if each.format == form]
        if len({each.arithmetic for each in alike}) > 1:
            told = ", ".join(f"{each.arithmetic} on {each.node}" for each in alike)
            lines.append(
                Finding(
                    CHECK,
                    Level.WARNING,
                    f"{alike[0].model} is computed otherwise by different nodes: {told}",
                    "Last bits of equal weights differ: a lost session goes on where they are "
                    "equal first, and elsewhere its answer may differ from then on.",
                    "Install the same releases on those machines, and a C++ compiler on all of "
                    "them or KAKEYA_COMPILED=off for all, if sessions are to go on bit for bit.",
                )
            )
    return lines

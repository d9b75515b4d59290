"""What docs/figures.md says of `fleet fit`'s memory, beside what a process took."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table
from scripts.write.figures_tables import line

HEAD = (
    "| model | weights as | weights, MiB | loading's peak over weights | said over taken, loading "
    "| at a first load | with a session |"
)
SIDES = {
    "auto": "the checkpoint's own format",
    "bf16": "bfloat16",
    "int8": "eight bits",
    "int4": "four bits",
    "float32": "float32",
    "operators": "the checkpoint's own, torch's operators",
}


def memory(found: Report) -> list[str]:
    """A row a model and way: its weights, and what is said of its memory over what it took."""
    return [
        line(
            model,
            SIDES[side],
            f"{taken['weight_bytes'] / 2**20:.1f}",
            f"{taken['loading_over_weights']:.2f}",
            f"{taken['loading_said_over_taken']:.2f}",
            f"{taken['checking_said_over_taken']:.2f}",
            f"{taken['session_said_over_taken']:.2f}",
        )
        for model, sides in found["models"].items()
        for side, taken in sides.items()
    ]


def context(found: Report) -> Sequence[str]:
    """Positions of the session."""
    return [f"{found['context']:,}"]


FITTED: Sequence[Declared] = (
    Table(FIGURES, HEAD, "fitted_memory", memory),
    Said(FIGURES, "and with a session of {} positions", "fitted_memory", context),
)

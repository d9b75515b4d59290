"""What docs/figures.md says of a drafter that was trained for the published model."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, README, Declared, Report, Said, Table

REPORT = "trained_drafter"
KINDS = ("chat", "code", "lists", "rewriting", "summaries", "prose")
HEAD = "| times alone | chat | code | lists | rewriting | summaries | prose | all | least |"
CALLED = {"0.0": "greedy", "0.7": "at 0.7"}


def times(found: Report) -> list[str]:
    """A row a temperature and side that has a drafter: medians by kind, of all, and the least."""
    rows = []
    for heat, by_side in found["times_alone"].items():
        for name, each in by_side.items():
            if name != "alone":
                numbers = [f"{each[kind]:.2f}" for kind in (*KINDS, "all", "least")]
                rows.append(f"| {CALLED[heat]}: {name} | " + " | ".join(numbers) + " |")
    return rows


def forwards(found: Report) -> Sequence[str]:
    """Tokens a forward of the trained one and of the plain one, greedily and at 0.7."""
    told = [found["tokens_a_forward"][heat]["all"] for heat in CALLED]
    numbers = [f"{each[name]:.1f}" for name in ("trained", "plain int4") for each in told]
    return [*numbers, str(found["answers_that_differ"])]


def automatic(found: Report) -> Sequence[str]:
    """Of `auto` over alone, greedily and at 0.7: the median of all answers, and the least."""
    told = [by_side["auto"] for by_side in found["times_alone"].values()]
    return [f"{each[name]:.2f}" for each in told for name in ("all", "least")]


TRAINED_DRAFTER: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, times),
    Said(
        README,
        "| SmolLM2-135M in bfloat16 with `auto` over alone, greedy; at temperature 0.7: median "
        "(least) | {} ({}); {} ({}) | prompts of six kinds, to the end of each answer; it has its "
        "own weights in four bits, the trained drafter and n-grams to choose from, all on the "
        "same two cores |",
        REPORT,
        automatic,
    ),
    Said(
        FIGURES,
        "Tokens a forward, greedily and at temperature 0.7: {} and {} of the trained drafter, {} "
        "and {} of the plain one; {} answers differ from those without.",
        REPORT,
        forwards,
    ),
)

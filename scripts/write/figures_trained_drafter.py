"""What docs/figures.md says of a drafter that was trained for the published model."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table
from scripts.write.figures_tables import line

REPORT, TAPS, VERSIONS = "trained_drafter", "drafter_taps", "drafter_versions"
KINDS = ("chat", "code", "lists", "rewriting", "summaries", "prose")
HEAD = (
    "| times alone | chat | code | lists | rewriting | summaries | prose | all | least prompt |"
    " least |"
)
TAPS_HEAD = "| layers | first place, % | second | third | fourth | tokens a forward |"
VERSIONS_HEAD = (
    "| for | DFlash | layers | millions of parameters | tokens a forward, greedily |"
    " at a temperature | a block, ms | its verifying, ms | tokens a second, greedily |"
    " at a temperature |"
)
CALLED = {"0.0": "greedy", "0.7": "at 0.7"}


def times(found: Report) -> list[str]:
    """A row a temperature and side that has a drafter: medians by kind, of all, and the least."""
    rows = []
    for heat, by_side in found["times_alone"].items():
        for name, each in by_side.items():
            if name != "alone":
                numbers = [f"{each[kind]:.2f}" for kind in (*KINDS, "all", "least_prompt", "least")]
                rows.append(f"| {CALLED[heat]}: {name} | " + " | ".join(numbers) + " |")
    return rows


def forwards(found: Report) -> Sequence[str]:
    """Tokens a forward of the trained one and of the plain one, greedily and at 0.7."""
    told = [found["tokens_a_forward"][heat]["all"] for heat in CALLED]
    numbers = [f"{each[name]:.1f}" for name in ("trained", "plain int4") for each in told]
    return [*numbers, str(found["answers_that_differ"])]


def rival(found: Report) -> Sequence[str]:
    """Tokens a second, greedily and of all kinds: llama.cpp's, alone, and with `auto`."""
    told = found["tokens_per_second"]["0.0"]["all"]
    return [f"{told[name]:.0f}" for name in ("llama.cpp BF16", "alone", "auto")]


def taps(found: Report) -> list[str]:
    """A row a set of layers: how often each place's guess is right, and what a forward commits."""
    rows = []
    for told, sets in (("", found["sets"]), (", chosen", found["chosen"])):
        for each in sets:
            names = ", ".join(map(str, each["layers"]))
            numbers = [f"{100 * right:.1f}" for right in each["right"]]
            numbers.append(f"{each['tokens_a_forward']:.3f}")
            rows.append(f"| {names}{told} | " + " | ".join(numbers) + " |")
    return rows


def probed(found: Report) -> Sequence[str]:
    """Positions that were fitted on, and held out."""
    return [f"{found['positions']:,}", f"{found['held_out_positions']:,}"]


def versions(found: Report) -> list[str]:
    """A row a drafter, of all verifiers one behind the other."""
    rows = []
    for each in found["drafters"]:
        committed = [side["tokens_a_forward"] for side in each["accepted"].values()]
        cells = [
            each["target"],
            str(each["version"]),
            str(each["layers"]),
            f"{each['parameters'] / 1e6:.2f}",
            *(f"{tokens:.2f}" for tokens in committed),
            f"{each['block_milliseconds']:.2f}",
            f"{each['verify_milliseconds']:.2f}",
            *(f"{speed:.0f}" for speed in each["tokens_per_second"].values()),
        ]
        rows.append(line(*cells))
    return rows


def trained(found: Report) -> Sequence[str]:
    """Steps of each drafter, and rows that all were trained on."""
    ((steps, rows),) = {(each["steps"], each["rows"]) for each in found["drafters"]}
    return [f"{steps:,}", f"{rows:,}"]


TRAINED_DRAFTER: Sequence[Declared] = (
    Table(FIGURES, HEAD, REPORT, times),
    Said(
        FIGURES,
        "Tokens a forward, greedily and at temperature 0.7: {} and {} of the trained drafter, {} "
        "and {} of the plain one; {} answers differ from those without.",
        REPORT,
        forwards,
    ),
    Said(
        FIGURES,
        "llama.cpp, which has the model in BF16 and no drafter, says {} tokens a second greedily, "
        "this engine {} alone and {} by `auto`.",
        REPORT,
        rival,
    ),
    Table(FIGURES, TAPS_HEAD, TAPS, taps),
    Said(
        FIGURES,
        "fitted on {} positions of the verifier's own answers and asked at {} of others",
        TAPS,
        probed,
    ),
    Table(FIGURES, VERSIONS_HEAD, VERSIONS, versions),
    Said(
        FIGURES,
        "each trained for {} steps on the same {} rows of its verifier's own text",
        VERSIONS,
        trained,
    ),
)

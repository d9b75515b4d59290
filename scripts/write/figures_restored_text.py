"""What docs/figures.md says of real text by each way of keeping keys and values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table
from scripts.write.figures_tables import line

REPORT = "restored_text"
LANGUAGE = (
    "| perplexity | pages, the first thousand tokens | second | to the fourth | to the eighth "
    "| code, the first | second | to the fourth | to the eighth |"
)
APART = (
    "| behind the first thousand tokens | pages: divergence, nats | equal choices, % "
    "| code: divergence, nats | equal choices, % |"
)
RECALL = (
    "| facts recalled | of one in a thousand tokens | of two | of four | that have left the window "
    "| that have not |"
)
QUOTES = (
    "| said word for word, of 24 tokens | just outside the window: tokens | whole "
    "| of the prompt: tokens | whole |"
)
KEPT = (
    "| single tokens behind a page | tokens a second | over full "
    "| bytes to the archive, a position | both ways, a step "
    "| verifier's K/V, KiB | archive's, MiB |"
)
WHERE = ("just outside the window", "of the prompt")


def named(side: str) -> str:
    """As the page calls it."""
    if side == "full":
        return "full attention"
    if side == "sink_window":
        return "sink + window"
    for name, made in (("fitted", "by regression"), ("trained", "by gradient")):
        side = re.sub(rf", {name}-\d+$", f" {made}", side)
    return side.replace("restored ", "restored, ")


def language(found: Report) -> list[str]:
    """A row a side: perplexity by band of positions."""
    rows = []
    for side in found["texts"]["pages"]:
        bands = [band for kind in found["texts"].values() for band in kind[side]["bands"]]
        rows.append(line(named(side), *(f"{band['perplexity']:.2f}" for band in bands)))
    return rows


def apart(found: Report) -> list[str]:
    """A row a side but full attention: how far the later bands are from it, by their positions."""
    rows = []
    for side in found["texts"]["pages"]:
        if side == "full":
            continue
        cells = []
        for kind in found["texts"].values():
            bands = kind[side]["bands"][1:]
            count = sum(band["to"] - band["from"] for band in bands)
            divergence, same = (
                sum(band[name] * (band["to"] - band["from"]) for band in bands) / count
                for name in ("divergence_nats", "same_choice")
            )
            cells += [f"{divergence:.4f}", f"{100 * same:.1f}"]
        rows.append(line(named(side), *cells))
    return rows


def recall(found: Report) -> list[str]:
    """A row a side: hits by the number of facts in a text, and by whether the window has them."""
    ((context, by_side),) = found["facts"].items()
    rows = []
    for side, told in by_side.items():
        # Each fact ends its part of the text.
        parts = len(told["by_depth"])
        left: list[Report] = []
        seen: list[Report] = []
        for depth, cell in told["by_depth"].items():
            behind_it = int(context) * (parts - 1 - int(depth)) / parts
            (left if behind_it > found["window_tokens"] else seen).append(cell)
        by_window = [
            {name: sum(cell[name] for cell in cells) for name in ("hits", "cases")}
            for cells in (left, seen)
        ]
        cells = [*told["by_facts"].values(), *by_window]
        rows.append(line(named(side), *(f"{cell['hits']} of {cell['cases']}" for cell in cells)))
    return rows


def quotes(found: Report) -> list[str]:
    """A row a side."""
    rows = []
    for side, quoted in found["quotes"].items():
        cells = []
        for where in WHERE:
            whole = quoted[where]["whole"]
            cells += [f"{quoted[where]['tokens']:.1f}", f"{whole['hits']} of {whole['cases']}"]
        rows.append(line(named(side), *cells))
    return rows


def kept(found: Report) -> list[str]:
    """A row a side."""
    return [
        line(
            named(side),
            f"{cell['tokens_per_second']['median']:.1f}",
            f"{cell['over_full']['median']:.2f}",
            f"{cell['bytes_a_position']:,.0f}",
            f"{cell['bytes_a_step']:,.0f}",
            f"{cell['verifier_bytes'] / 2**10:,.0f}",
            f"{cell['restorer_bytes'] / 2**20:.1f}",
        )
        for side, cell in found["steps"]["sides"].items()
    ]


def behind(found: Report) -> Sequence[str]:
    """Tokens before the single ones."""
    return [f"{found['steps']['context_tokens']:,}"]


def trained(found: Report) -> Sequence[str]:
    """Steps of the widest map, tokens of its longest row, and steps of the narrower ones."""
    maps = [each for each in found["maps"] if "steps" in each]
    widest, *narrower = sorted(maps, key=lambda each: -each["width"])
    (more,) = {each["steps"] for each in narrower}
    return [str(widest["steps"]), f"{widest['longest_row']:,}", str(more)]


RESTORED_TEXT: Sequence[Declared] = (
    Table(FIGURES, LANGUAGE, REPORT, language),
    Table(FIGURES, APART, REPORT, apart),
    Table(FIGURES, RECALL, REPORT, recall),
    Table(FIGURES, QUOTES, REPORT, quotes),
    Table(FIGURES, KEPT, REPORT, kept),
    Said(
        FIGURES,
        "for {} steps of a row of at most {} tokens, the narrower ones from its nearest map of "
        "their size for {} more",
        REPORT,
        trained,
    ),
    Said(FIGURES, "single tokens come behind {} of a page", REPORT, behind),
)

"""Draws the figures of scripts/eval/needle.py.

python -m scripts.plot.needle benchmarks/needle.json benchmarks/needle.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from scripts.plot.looks import BLUE, GREY, INK, PALE_BLUE, PALE_GREY, Report, bare, run, save

LOOKS = {
    "full": ("full attention", INK, "o-"),
    "sink_window": ("sink + window", GREY, "s-"),
    "restored archive": ("restored: archive", BLUE, "^-"),
    "restored projection": ("restored: projection", PALE_BLUE, "D-"),
    "restored identity": ("restored: identity (plumbing)", PALE_GREY, "x:"),
}


def draw(report: Report, target: Path) -> None:
    """Recall with its interval, and the effective attention, by context."""
    figure, (recall, attention) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
    rungs = report["rungs"]
    places = list(range(len(rungs)))
    for offset, (name, (label, colour, style)) in enumerate(LOOKS.items()):
        found = [rung["strategies"].get(name) for rung in rungs]
        if None in found:
            continue
        shares = [100 * cell["recall"] for cell in found]
        # At 0 and 1 the interval's end is the share itself, up to a rounding below zero.
        low = [
            max(0.0, share - 100 * cell["wilson_95"][0])
            for share, cell in zip(shares, found, strict=True)
        ]
        high = [
            max(0.0, 100 * cell["wilson_95"][1] - share)
            for share, cell in zip(shares, found, strict=True)
        ]
        shifted = [place + 0.05 * (offset - 2) for place in places]
        recall.errorbar(
            shifted,
            shares,
            yerr=(low, high),
            fmt=style,
            color=colour,
            label=label,
            capsize=2,
            markersize=4,
            linewidth=1.4,
        )
        covered = [cell["anatomy"]["effective_attention"] for cell in found]
        if None not in covered:
            attention.plot(
                shifted, covered, style, color=colour, label=label, markersize=4, linewidth=1.4
            )
    recall.set_ylabel("recall, %, greedy", fontsize=9)
    recall.set_ylim(-3, 104)
    attention.set_ylabel("effective attention fraction", fontsize=9)
    attention.set_ylim(0, 1.04)
    for axes in (recall, attention):
        _contexts(axes, [rung["context_tokens"] for rung in rungs])
    handles, labels = recall.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    save(figure, target)


def _contexts(axes: Axes, contexts: list[int]) -> None:
    axes.set_xticks(range(len(contexts)), [f"{context:,}" for context in contexts], fontsize=8)
    axes.set_xlabel("tokens of context", fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

"""Draws the figures of scripts/bench/loop.py.

python -m scripts.plot.loop benchmarks/loop.json benchmarks/loop.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from scripts.plot.looks import BLUE, GREY, INK, PALE_BLUE, Report, bare, run, save

WIDTH = 0.36
COLOURS = (BLUE, PALE_BLUE, GREY)


def draw(report: Report, target: Path) -> None:
    """One group a place, one bar a probability: efficiency with its interval, and the goal."""
    figure, axes = plt.subplots(figsize=(7.6, 3.5), layout="constrained")
    cells = [cell for cell in report["cells"] if cell["place"] != "alone"]
    series = sorted({(cell["right_probability"], cell["draft_seconds"]) for cell in cells})
    groups = sorted({_group(cell) for cell in cells})
    width = 2 * WIDTH / len(series)
    for index, (probability, draft) in enumerate(series):
        own = {
            _group(cell): cell
            for cell in cells
            if (cell["right_probability"], cell["draft_seconds"]) == (probability, draft)
        }
        places = [
            place + (index - (len(series) - 1) / 2) * width
            for place, group in enumerate(groups)
            if group in own
        ]
        found = [own[group]["efficiency"] for group in groups if group in own]
        heights = [cell["median"] for cell in found]
        low = [max(0.0, cell["median"] - cell["interval_95"][0]) for cell in found]
        high = [max(0.0, cell["interval_95"][1] - cell["median"]) for cell in found]
        label = f"a guess is right with p = {probability:g}"
        if draft:
            label += f", {draft * 1000:g} ms a draft"
        bars = axes.bar(
            places,
            heights,
            width * 0.92,
            yerr=(low, high),
            color=COLOURS[index % len(COLOURS)],
            label=label,
            error_kw={"linewidth": 0.8, "capsize": 2, "ecolor": INK},
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=7, label_type="center", color=INK)
    axes.axhline(report["goal"], color=INK, linewidth=1, linestyle="--", label="goal")
    axes.set_xticks(range(len(groups)), [_label(group) for group in groups], fontsize=8)
    axes.set_ylim(0, 1.08)
    axes.set_ylabel("of an ideal loop's tokens a second", fontsize=9)
    axes.set_title(
        f"{report['model']}, {report['dtype']}; a replaying proposer, not a model", fontsize=9
    )
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    bare(axes)
    save(figure, target)


def _group(cell: Report) -> tuple[bool, float]:
    return cell["place"] == "remote", cell["added_round_trip_seconds"]


def _label(group: tuple[bool, float]) -> str:
    is_remote, added = group
    return f"remote\n+{added * 1000:g} ms" if is_remote else "in process"


if __name__ == "__main__":
    run(draw, __doc__ or "")

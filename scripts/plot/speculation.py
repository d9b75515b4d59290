"""Draws the figures of scripts/bench/speculation.py.

python -m scripts.plot.speculation benchmarks/speculation.json benchmarks/speculation.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from scripts.plot.looks import BLUE, GREY, INK, PALE_BLUE, PALE_GREY, Report, bare, run, save

SIDES = (
    ("remote", "drafts from another node", BLUE),
    ("in_process", "drafts from the same process", PALE_BLUE),
    ("alone", "this engine alone", GREY),
)
WIDTH = 0.16


def draw(report: Report, target: Path) -> None:
    """A panel a way of choosing: tokens a second by prompt kind, K/V kept as the first of all."""
    kv = next(iter(report["verdict"]))
    choices = list(report["temperatures"])
    figure, panels = plt.subplots(
        1, len(choices), figsize=(9.0, 3.6), layout="constrained", squeeze=False, sharey=True
    )
    for axes, choice in zip(panels.flat, choices, strict=True):
        cells = [cell for cell in report["cells"] if cell["sampling"] == choice]
        panel(axes, cells, kv)
        heat = report["temperatures"][choice]
        axes.set_title("greedy" if not heat else f"temperature {heat:g}", fontsize=10)
    panels[0][0].set_ylabel("tokens a second, median", fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, target)


def panel(axes: Axes, cells: list[Report], kv: str) -> None:
    """One way of choosing tokens."""
    names = [(f"{place} {kv}", label, colour) for place, label, colour in SIDES]
    names.append(("transformers", "transformers' generate", PALE_GREY))
    names.append((f"remote {kv} ngram", "prompt lookup from another node", INK))
    names = [name for name in names if all(name[0] in cell["sides"] for cell in cells)]
    middle = (len(names) - 1) / 2
    for offset, (name, label, colour) in enumerate(names):
        found = [cell["sides"][name] for cell in cells]
        speeds = [side["tokens_per_second_median"] for side in found]
        spans = [side["tokens_per_second_interval_95"] for side in found]
        low = [max(0.0, speed - span[0]) for speed, span in zip(speeds, spans, strict=True)]
        high = [max(0.0, span[1] - speed) for speed, span in zip(speeds, spans, strict=True)]
        places = [index + (offset - middle) * WIDTH for index in range(len(cells))]
        axes.bar(
            places,
            speeds,
            WIDTH * 0.94,
            yerr=(low, high),
            color=colour,
            label=label,
            error_kw={"linewidth": 0.7, "capsize": 1.5, "ecolor": INK},
        )
    for index, cell in enumerate(cells):
        side = cell["sides"][f"remote {kv}"]
        ratio = cell["ratios"][f"remote {kv}"]["over_fastest_plain"]["median"]
        top = max(cell["sides"][name]["tokens_per_second_interval_95"][1] for name, *_ in names)
        axes.annotate(
            f"{ratio:.2f}x plain\n{side['tokens_per_forward']:.1f} a forward",
            (index, top),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7,
        )
    axes.set_xticks(range(len(cells)), [cell["kind"] for cell in cells], fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(y=0.2)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

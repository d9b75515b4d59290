"""Draws the figures of scripts/bench/restored.py.

python -m scripts.plot.restored benchmarks/restored.json benchmarks/restored.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from scripts.plot.looks import BLUE, GREY, INK, PALE_BLUE, PALE_GREY, Report, bare, run, save

LOOKS = {
    "full": ("full attention", INK, "o-"),
    "sink_window": ("sink + window", GREY, "s-"),
    "restored archive": ("restored, archive in another process", BLUE, "^-"),
    "restored projection": ("restored, projection", PALE_BLUE, "D-"),
    "restored identity": ("restored, store in this process", PALE_GREY, "x-"),
}
KIB = 1024
PLAIN = FuncFormatter(lambda value, _place: f"{value:,g}")
PARTS = {"speed": "speed", "shipped": "speed of the shipped verifier"}


def draw(report: Report, target: Path) -> None:
    """Sustained bytes, a step's peak, and speed by context, as far as they were measured."""
    panels = []
    if "memory" in report:
        panels += [
            ("kv_bytes", "the verifier's K/V, KiB"),
            ("peak_step_bytes", "a step's peak, KiB"),
        ]
    parts = [part for part in PARTS if part in report]
    count = len(panels) + len(parts)
    figure, grid = plt.subplots(
        1, count, figsize=(4.2 * count, 3.5), layout="constrained", squeeze=False
    )
    axes_of = list(grid.flat)
    for axes, (figure_name, label) in zip(axes_of, panels, strict=False):
        memory_panel(axes, report["memory"]["strategies"], figure_name)
        axes.set_ylabel(label, fontsize=9)
    for axes, part in zip(axes_of[len(panels) :], parts, strict=True):
        speed_panel(axes, report[part]["cells"])
        axes.set_title(f"{report[part]['model']}, {report[part]['dtype']}", fontsize=8)
    entries: dict[str, Artist] = {}
    for axes in axes_of:
        handles, labels = axes.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
    )
    save(figure, target)


def memory_panel(axes: Axes, strategies: Report, name: str) -> None:
    """Bytes by length, both logarithmic."""
    for strategy, (label, colour, style) in LOOKS.items():
        if strategy in strategies:
            cells = strategies[strategy]["cells"]
            axes.plot(
                [cell["length"] for cell in cells],
                [cell[name] / KIB for cell in cells],
                style,
                color=colour,
                label=label,
                markersize=4,
                linewidth=1.3,
            )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_minor_formatter(NullFormatter())
    lengths(axes, "tokens of history")


def speed_panel(axes: Axes, cells: list[Report]) -> None:
    """Single-token steps a second by context."""
    single = [
        cell for cell in cells if cell["tokens_a_step"] == min(c["tokens_a_step"] for c in cells)
    ]
    for strategy, (label, colour, style) in LOOKS.items():
        own = [cell for cell in single if strategy in cell["strategies"]]
        if not own:
            continue
        axes.plot(
            [cell["context_tokens"] for cell in own],
            [cell["strategies"][strategy]["steps_per_second_median"] for cell in own],
            style,
            color=colour,
            label=label,
            markersize=4,
            linewidth=1.3,
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("steps a second", fontsize=9)
    lengths(axes, "tokens of context")


def lengths(axes: Axes, label: str) -> None:
    """A logarithmic axis of tokens with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(PLAIN)
    axes.set_xlabel(label, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="x", labelrotation=45)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

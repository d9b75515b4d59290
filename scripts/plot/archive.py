"""Draws the figures of scripts/bench/archive.py.

python -m scripts.plot.archive benchmarks/archive.json benchmarks/archive.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from scripts.plot.looks import (
    BLUE,
    GREY,
    INK,
    PALE_BLUE,
    PALE_GREY,
    Report,
    bare,
    plain_log,
    run,
    save,
)

LOOKS = (
    ("full", INK, "o-"),
    ("restored, archive in this process", PALE_GREY, "x-"),
    ("restored, archive over loopback", GREY, "s-"),
    ("restored, archive over 10 Gbit/s + 0.1 ms", BLUE, "^-"),
    ("restored, archive over 1 Gbit/s + 0.3 ms", PALE_BLUE, "D-"),
)
GIB = 1 << 30
PLAIN = FuncFormatter(lambda value, _place: f"{value:,g}")


def draw(report: Report, target: Path) -> None:
    """Tokens a second by context for each block size, and both hosts' K/V."""
    cells = report["contexts"]
    sizes = sorted(
        {
            size
            for cell in cells
            for side in cell["sides"].values()
            for size in side.get("blocks", {})
        },
        key=int,
    )
    count = len(sizes) + 1
    figure, grid = plt.subplots(
        1, count, figsize=(4.4 * count, 3.9), layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    for axes, size in zip(panels, sizes, strict=False):
        speed_panel(axes, cells, size)
        single = "one by one" if size == "1" else f"in blocks of {size}, all accepted"
        axes.set_title(f"tokens {single}", fontsize=9)
    memory_panel(panels[-1], cells, report["kv_budget_bytes"])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(f"{report['model']}, random weights, {report['dtype']}", fontsize=9)
    save(figure, target)


def speed_panel(axes: Axes, cells: list[Report], size: str) -> None:
    """One line a side; a side ends where it does not fit."""
    low: list[float] = []
    for name, colour, style in LOOKS:
        own = [cell for cell in cells if size in cell["sides"].get(name, {}).get("blocks", {})]
        speeds = [
            cell["sides"][name]["blocks"][size]["tokens_per_second"]["median"] for cell in own
        ]
        low += speeds
        if own:
            axes.plot(
                [cell["context_tokens"] for cell in own],
                speeds,
                style,
                color=colour,
                label=name,
                markersize=4,
                linewidth=1.3,
            )
    plain_log(axes, min(low))
    axes.set_ylabel("tokens a second", fontsize=9)
    lengths(axes, cells)


def memory_panel(axes: Axes, cells: list[Report], budget_bytes: int) -> None:
    """K/V bytes of the verifier's host and of the archive's, by context."""
    for name, colour, style in LOOKS:
        if name not in ("full", LOOKS[3][0], LOOKS[2][0]):
            continue
        own = [
            (cell["context_tokens"], cell["sides"][name]["memory"])
            for cell in cells
            if "memory" in cell["sides"].get(name, {})
        ]
        if not own or (name == LOOKS[2][0] and _has(cells, LOOKS[3][0])):
            continue
        tokens = [count for count, _ in own]
        axes.plot(
            tokens,
            [memory["verifier_kv_bytes"] / GIB for _, memory in own],
            style,
            color=colour,
            markersize=4,
            label="full: the verifier's" if name == "full" else "restored: the verifier's",
        )
        if name != "full":
            axes.plot(
                tokens,
                [memory["archive_kv_bytes"] / GIB for _, memory in own],
                "v:",
                color=colour,
                markersize=4,
                label="restored: the archive's",
            )
    axes.axhline(budget_bytes / GIB, color=INK, linewidth=1, linestyle="--", label="the budget")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(PLAIN)
    axes.set_ylabel("GiB of K/V", fontsize=9)
    axes.set_title("where the K/V are", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    lengths(axes, cells)


def _has(cells: list[Report], name: str) -> bool:
    return any("memory" in cell["sides"].get(name, {}) for cell in cells)


def lengths(axes: Axes, cells: list[Report]) -> None:
    """A logarithmic axis of tokens, with the contexts that were measured."""
    axes.set_xscale("log", base=2)
    axes.set_xticks([cell["context_tokens"] for cell in cells])
    axes.xaxis.set_major_formatter(PLAIN)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("tokens of context", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="x", labelrotation=45)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

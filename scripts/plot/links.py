"""Draws the figures of scripts/bench/links.py.

python -m scripts.plot.links benchmarks/links.json benchmarks/links.svg
"""

from __future__ import annotations

from collections.abc import Callable
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

LOOKS = {
    "raw TCP": (INK, "o-"),
    "bare ring": (PALE_GREY, "s--"),
    "bare ring, pieces": (GREY, "s-"),
    "shared-memory road": (PALE_BLUE, "^--"),
    "ring road": (PALE_BLUE, "D--"),
    "link over gRPC": (GREY, "x-"),
    "link over shared memory": (BLUE, "^-"),
    "link over the ring": (BLUE, "D-"),
}
STEP = 1024
UNITS = ("B", "KiB", "MiB", "GiB")
CARRIERS = {
    "grpc": ("stays on gRPC", GREY),
    "local": ("shared memory", BLUE),
    "ring": ("the ring", PALE_BLUE),
}


def draw(report: Report, target: Path) -> None:
    """Seconds and gigabytes a second by payload, and what promotion did, as far as measured."""
    count = 2 * ("payloads" in report) + ("promotion" in report)
    figure, grid = plt.subplots(
        1, count, figsize=(4.6 * count, 3.9), layout="constrained", squeeze=False
    )
    panels = list(grid.flat)
    if "payloads" in report:
        cells = report["payloads"]["cells"]
        payload_panel(panels[0], cells, lambda cell: cell["seconds"]["median"] * 1e6)
        panels[0].set_ylabel("microseconds until the sender knows", fontsize=9)
        payload_panel(panels[1], cells, lambda cell: cell["gigabytes_per_second"])
        panels[1].set_ylabel("GB/s", fontsize=9)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False
        )
    if "promotion" in report:
        promotion_panel(panels[-1], report["promotion"])
    save(figure, target)


def payload_panel(axes: Axes, cells: list[Report], value: Callable[[Report], float]) -> None:
    """One line a way, both axes logarithmic."""
    for way, (colour, style) in LOOKS.items():
        own = [cell for cell in cells if cell["way"] == way]
        if own:
            axes.plot(
                [cell["payload_bytes"] for cell in own],
                [value(cell) for cell in own],
                style,
                color=colour,
                label=way,
                markersize=4,
                linewidth=1.3,
            )
    plain_log(axes, min(value(cell) for cell in cells))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({cell["payload_bytes"] for cell in cells}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda bytes_, _place: amount(bytes_)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8)
    axes.tick_params(axis="x", labelrotation=45)
    axes.set_xlabel("payload", fontsize=9)
    bare(axes)


def promotion_panel(axes: Axes, found: Report) -> None:
    """One bar a link: after its choice over gRPC beside it, in ascending order."""
    place = 0
    labelled = set()
    ticks = []
    for name, part in found.items():
        links = sorted(part["links"], key=lambda link: link["after_over_grpc"])
        for link in links:
            label, colour = CARRIERS[link["carried_by"]]
            axes.bar(
                place,
                link["after_over_grpc"],
                0.85,
                color=colour,
                label=None if label in labelled else label,
            )
            labelled.add(label)
            place += 1
        ticks.append((place - len(links) / 2 - 0.5, name))
        place += 1
    axes.axhline(1.0, color=INK, linewidth=1, linestyle="--")
    axes.set_xticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=8)
    axes.set_ylabel("seconds a tensor, over gRPC's", fontsize=9)
    axes.set_title("links that choose for themselves", fontsize=9)
    axes.tick_params(labelsize=8)
    # Above the bars.
    axes.set_ylim(0.0, 1.45)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    bare(axes)


def amount(count: float) -> str:
    """Bytes for people: 64 KiB."""
    power = 0
    while count >= STEP and power < len(UNITS) - 1:
        count /= STEP
        power += 1
    return f"{count:g} {UNITS[power]}"


if __name__ == "__main__":
    run(draw, __doc__ or "")

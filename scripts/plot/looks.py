"""What the pictures of the figures have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

BLUE, PALE_BLUE, GREY, PALE_GREY = "#2f6fde", "#7aa5ee", "#9aa3af", "#c9ced6"
INK = "#1f2937"

Report = dict[str, Any]


def begin() -> None:
    """The same bytes for the same figures."""
    plt.rcParams["svg.hashsalt"] = "kakeya"


def bare(axes: Axes) -> None:
    """Only the two axes that are read."""
    axes.spines[["top", "right"]].set_visible(False)


def plain_log(axes: Axes, lowest: float) -> None:
    """A logarithmic axis upwards from below `lowest`, with plain numbers."""
    axes.set_yscale("log")
    axes.set_ylim(bottom=lowest / 1.6)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def save(figure: Figure, target: Path) -> None:
    """Writes the picture, without a date."""
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def run(draw: Callable[[Report, Path], None], description: str) -> None:
    """The command line of a plot script: the JSON in, the picture out."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    begin()
    draw(json.loads(arguments.report.read_text()), arguments.picture)

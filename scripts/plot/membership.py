"""Draws the figures of scripts/simulate.py.

python -m scripts.plot.membership benchmarks/membership.json benchmarks/membership.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from scripts.plot.looks import BLUE, GREY, PALE_BLUE, PALE_GREY, Report, bare, run, save


def draw(report: Report, target: Path) -> None:
    """Rounds beside their bounds, deaths, and idle bytes, over the number of nodes."""
    figure, (rounds, deaths, idle) = plt.subplots(1, 3, figsize=(11.0, 3.3), layout="constrained")
    for is_lossy, colour, pale in ((False, BLUE, PALE_BLUE), (True, GREY, PALE_GREY)):
        rows = [row for row in report["news"] if (row["loss"] > 0.0) is is_lossy]
        counts = [row["node_count"] for row in rows]
        name = f"{rows[0]['loss']:.0%} loss"
        rounds.plot(counts, [row["bound"] for row in rows], "--", color=pale, label="its bound")
        worst = [row["rounds_p99"] for row in rows]
        rounds.plot(counts, worst, "o-", color=colour, label=f"{name}, p99")
        middle = [row["rounds_p50"] for row in rows]
        rounds.plot(counts, middle, "o:", color=colour, label=f"{name}, p50")
    finish(rounds, "rounds until news is everywhere")
    counts = [row["node_count"] for row in report["deaths"]]
    everyone = [row["everyone_seconds_max"] for row in report["deaths"]]
    deaths.plot(counts, everyone, "o-", color=GREY, label="everyone, worst")
    first = [row["first_seconds_p50"] for row in report["deaths"]]
    deaths.plot(counts, first, "o-", color=BLUE, label="first, p50")
    finish(deaths, "seconds until a death is found")
    counts = [row["node_count"] for row in report["idle"]]
    sent = [row["bytes_a_second_a_node"] for row in report["idle"]]
    idle.plot(counts, sent, "o-", color=BLUE, label="protobuf, idle")
    finish(idle, "bytes a second that a node sends")
    save(figure, target)


def finish(axes: Axes, up: str) -> None:
    """Nodes across, labels, a scale from 0."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("nodes", fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.set_ylim(bottom=0.0)
    axes.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=7)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

"""Draws the figures of scripts/bench/sessions.py.

python -m scripts.plot.sessions benchmarks/sessions.json benchmarks/sessions.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from scripts.plot.looks import BLUE, GREY, Report, bare, plain_log, run, save

COLOURS = {"sink_window": BLUE, "full": GREY}
MEGABYTE = 1e6


def draw(report: Report, target: Path) -> None:
    """Latency, memory, and what sessions gain from sharing forwards."""
    figure, (latency, memory, crowd) = plt.subplots(1, 3, figsize=(11.0, 3.3), layout="constrained")
    lowest: list[float] = []
    for run_ in report["runs"]:
        colour, kind, sessions = COLOURS[run_["kind"]], run_["kind"], run_["sessions"]
        style = "-" if sessions == 1 else "--"
        label = f"{kind}, {sessions} session{'s' if sessions > 1 else ''}"
        tenths = [1000.0 * seconds for seconds in run_["latency_tenths_p50"]]
        latency.plot(range(1, len(tenths) + 1), tenths, style, color=colour, label=label)
        turns = [reading[0] for reading in run_["readings"]]
        kv = [reading[1] / MEGABYTE for reading in run_["readings"]]
        resident = [reading[2] / MEGABYTE for reading in run_["readings"]]
        lowest.append(min(kv))
        memory.plot(turns, kv, style, color=colour)
        memory.plot(turns, resident, style, color=colour, alpha=0.45)
    finish(latency, "tenth of the turns", "milliseconds a turn, median")
    latency.set_ylim(bottom=0.0)
    latency.legend(frameon=False, fontsize=7)
    finish(memory, "turns", "MB: K/V, and resident (pale)")
    plain_log(memory, min(lowest))
    for kind, speeds in report["crowds"].items():
        counts = [entry["sessions"] for entry in speeds]
        tokens = [entry["tokens_per_second"] for entry in speeds]
        crowd.plot(counts, tokens, "o-", color=COLOURS[kind], label=kind)
    finish(crowd, "sessions at once", "tokens a second, all together")
    crowd.set_ylim(bottom=0.0)
    crowd.legend(frameon=False, fontsize=7)
    save(figure, target)


def finish(axes: Axes, across: str, up: str) -> None:
    """Labels."""
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.tick_params(labelsize=8)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

"""Draws the figures of scripts/bench_remote.py.

python -m scripts.plot_remote benchmarks/remote.json benchmarks/remote.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

LABELS = {
    "remote": "proposer on\nanother node",
    "in_process": "proposer in the\nverifier's process",
    "alone": "verifier\nalone",
    "transformers": "transformers'\ngenerate",
}
COLOURS = {
    "remote": "#2f6fde",
    "in_process": "#7aa5ee",
    "alone": "#9aa3af",
    "transformers": "#c9ced6",
}


def draw(report: dict[str, dict[str, dict[str, float]]], target: Path) -> None:
    """One bar a side: median tokens a second, with tokens a forward beneath."""
    plt.rcParams["svg.hashsalt"] = "kakeya"
    figure, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
    for index, side in enumerate(LABELS):
        figures = report["sides"][side]
        speed = figures["tokens_per_second_median"]
        axes.bar(index, speed, color=COLOURS[side], width=0.62)
        axes.annotate(
            f"{speed:.0f}", (index, speed), ha="center", va="bottom", fontsize=12, weight="bold"
        )
        axes.annotate(
            f"{figures['tokens_per_forward']:.2f} tokens\na forward",
            (index, speed / 2),
            ha="center",
            va="center",
            fontsize=8,
            color="white" if side == "remote" else "#1f2937",
        )
    axes.set_xticks(range(len(LABELS)), LABELS.values())
    axes.set_ylabel("tokens a second, median")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.15)
    figure.savefig(target, metadata={"Date": None})


def main() -> None:
    """Reads the JSON, writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    draw(json.loads(arguments.report.read_text()), arguments.picture)


if __name__ == "__main__":
    main()

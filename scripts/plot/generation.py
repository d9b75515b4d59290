"""Draws the figures of scripts/bench/generation.py --compare.

python -m scripts.plot.generation benchmarks/generation.json benchmarks/generation.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from scripts.plot.looks import BLUE, GREY, Report, bare, run, save

SIDES = {"kv_cache": ("with the cache", BLUE), "no_kv_cache": ("full recomputation", GREY)}


def draw(report: Report, target: Path) -> None:
    """Milliseconds of each step, both sides."""
    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for side, (label, colour) in SIDES.items():
        if side not in report["sides"]:
            continue
        figures = report["sides"][side]
        steps = [1000.0 * seconds for seconds in figures["step_seconds"]]
        speed = figures["tokens_per_second_median"]
        axes.plot(
            range(2, len(steps) + 2), steps, color=colour, label=f"{label}: {speed:.0f} a second"
        )
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(f"generated token, after a prompt of {report['prompt_tokens']}")
    axes.set_ylabel("milliseconds a step, median")
    axes.legend(frameon=False)
    bare(axes)
    save(figure, target)


if __name__ == "__main__":
    run(draw, __doc__ or "")

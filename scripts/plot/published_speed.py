"""Draws the figures of scripts/bench/published_speed.py.

python -m scripts.plot.published_speed REPORT.json PICTURE.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from scripts.plot.looks import BLUE, GREY, INK, PALE_GREY, Report, bare, run, save

COLOURS = {"kakeya": BLUE, "transformers": PALE_GREY, "llama.cpp": INK, "mlx-lm": GREY}
"""By the first word of a side's name."""
FEW = 10
"""Tokens a second below which a digit more is told."""
PANELS = {
    "decode": "decoding behind {context_tokens:,} tokens",
    "prefill": "a prompt of {prompt_tokens:,}",
    "together": "{sessions_together} sessions in one forward",
}


def draw(report: Report, target: Path) -> None:
    """A panel a measure, a bar a side: tokens a second."""
    sides: dict[str, Report] = report["tokens_per_second"]
    figure, panels = plt.subplots(
        1, len(PANELS), figsize=(11.0, 0.26 * len(sides) + 0.9), sharey=True, layout="constrained"
    )
    for axes, (what, title) in zip(panels, PANELS.items(), strict=True):
        panel(axes, sides, what)
        axes.set_title(title.format_map(report), fontsize=9)
    panels[0].set_yticks(range(len(sides)), list(sides), fontsize=8)
    panels[0].invert_yaxis()
    figure.supxlabel("tokens a second", fontsize=9)
    save(figure, target)


def panel(axes: Axes, sides: dict[str, Report], what: str) -> None:
    """What was measured of it; sides keep their places."""
    places = [place for place, own in enumerate(sides.values()) if what in own]
    names = [name for name, own in sides.items() if what in own]
    speeds = [sides[name][what]["median"] for name in names]
    bars = axes.barh(places, speeds, 0.7, color=[COLOURS[name.split()[0]] for name in names])
    labels = [f"{speed:,.0f}" if speed >= FEW else f"{speed:.1f}" for speed in speeds]
    axes.bar_label(bars, labels, fontsize=7, padding=2)
    axes.margins(x=0.12)
    axes.tick_params(labelsize=8)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

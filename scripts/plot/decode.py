"""Draws the figures of scripts/bench/decode.py.

python -m scripts.plot.decode benchmarks/decode.json benchmarks/decode.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

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

SIDES = {
    "torch": ("this engine, torch", BLUE),
    "mlx": ("this engine, MLX", PALE_BLUE),
    "transformers": ("transformers, dynamic cache", GREY),
    "transformers_static": ("transformers, static cache", PALE_GREY),
    "mlx_lm": ("mlx-lm's generate_step", INK),
}
WIDTH = 0.2


def draw(report: Report, target: Path) -> None:
    """A panel a model and dtype: tokens a second by context, and the memory's bound."""
    groups: dict[tuple[str, str], list[Report]] = {}
    for cell in report["cells"]:
        groups.setdefault((cell["model"], cell["dtype"]), []).append(cell)
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(max(6.4, 4.8 * columns), 3.4 * rows),
        squeeze=False,
        layout="constrained",
    )
    panels = list(grid.flat)
    for axes, ((model, dtype), cells) in zip(panels, groups.items(), strict=False):
        panel(axes, sorted(cells, key=lambda cell: int(cell["context"])))
        axes.set_title(f"{model} shape, {dtype}", fontsize=10)
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.supylabel("tokens a second, single steps", fontsize=9)
    save(figure, target)


def panel(axes: Axes, cells: list[Report]) -> None:
    """One model in one dtype."""
    lowest = [float(cell["bound_tokens_per_second"]) for cell in cells]
    shown = {name: look for name, look in SIDES.items() if any(name in c["sides"] for c in cells)}
    middle = (len(shown) - 1) / 2
    for offset, (side, (label, colour)) in enumerate(shown.items()):
        places: list[float] = []
        speeds: list[float] = []
        for index, cell in enumerate(cells):
            if side in cell["sides"]:
                places.append(index + (offset - middle) * WIDTH)
                speeds.append(cell["sides"][side]["tokens_per_second_median"])
        lowest += speeds
        bars = axes.bar(places, speeds, WIDTH, color=colour, label=label)
        axes.bar_label(bars, fmt="%.3g", fontsize=6, padding=1)
    for index, cell in enumerate(cells):
        bound = cell["bound_tokens_per_second"]
        name = "bound: bytes read over measured bandwidth" if index == 0 else None
        reach = (index - (middle + 0.5) * WIDTH, index + (middle + 0.5) * WIDTH)
        axes.plot(reach, (bound, bound), color=INK, linewidth=1.2, label=name)
    plain_log(axes, min(lowest))
    axes.set_xticks(range(len(cells)), [f"{cell['context']:,}" for cell in cells], fontsize=8)
    axes.set_xlabel("tokens of context", fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    bare(axes)


if __name__ == "__main__":
    run(draw, __doc__ or "")

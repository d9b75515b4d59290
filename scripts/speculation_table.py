"""The table of scripts/bench_speculation.py, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = (
    "| prompt | choice | K/V | fastest plain, tokens/s | in process | another node "
    "| over plain (95 %) | tokens a forward |",
    "|---|---|---|---|---|---|---|---|",
)


def markdown(report: Mapping[str, Any]) -> str:
    """One row a prompt kind, way of choosing and way of keeping K/V."""
    lines = list(HEAD)
    for cell in report["cells"]:
        plain = cell["sides"][cell["fastest_plain"]]["tokens_per_second_median"]
        for kv in report["verdict"]:
            remote = cell["sides"][f"remote {kv}"]
            ratio = cell["ratios"][f"remote {kv}"]["over_fastest_plain"]
            low, high = ratio["interval_95"]
            lines.append(
                f"| {cell['kind']} | {cell['sampling']} | {kv} "
                f"| {plain:.0f} ({cell['fastest_plain']}) "
                f"| {cell['sides'][f'in_process {kv}']['tokens_per_second_median']:.0f} "
                f"| {remote['tokens_per_second_median']:.0f} "
                f"| {ratio['median']:.2f} ({low:.2f} to {high:.2f}) "
                f"| {remote['tokens_per_forward']:.2f} |"
            )
    return "\n".join(lines) + "\n"

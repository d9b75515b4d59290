"""The table of scripts/bench/speculation.py, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = (
    "| prompt | choice | K/V | fastest plain, tokens/s | in process | another node "
    "| over plain (95 %) | `ngram`, another node | over plain (95 %) | tokens a forward "
    "| loop keeps | ends an 8-gram that was there |",
    "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
)


def markdown(report: Mapping[str, Any]) -> str:
    """One row a prompt kind, way of choosing and way of keeping K/V."""
    rows = [_row(cell, kv) for cell in report["cells"] for kv in report["verdict"]]
    return "\n".join([*HEAD, *rows]) + "\n"


def _row(cell: Mapping[str, Any], kv: str) -> str:
    sides = cell["sides"]
    plain = sides[cell["fastest_plain"]]["tokens_per_second_median"]
    remote = sides[f"remote {kv}"]
    words = [
        cell["kind"],
        cell["sampling"],
        kv,
        f"{plain:.0f} ({cell['fastest_plain']})",
        f"{sides[f'in_process {kv}']['tokens_per_second_median']:.0f}",
        f"{remote['tokens_per_second_median']:.0f}",
        _ratio(cell, f"remote {kv}"),
        *_beside(cell, f"remote {kv} ngram"),
        f"{remote['tokens_per_forward']:.2f}",
        f"{remote['loop_efficiency']['median']:.2f}",
        f"{100 * cell['repeated_share'][kv]['median']:.0f} %",
    ]
    return f"| {' | '.join(words)} |"


def _beside(cell: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Another proposer's speed and ratio, where it drafted."""
    if name not in cell["sides"]:
        return "-", "-"
    return f"{cell['sides'][name]['tokens_per_second_median']:.0f}", _ratio(cell, name)


def _ratio(cell: Mapping[str, Any], name: str) -> str:
    ratio = cell["ratios"][name]["over_fastest_plain"]
    low, high = ratio["interval_95"]
    return f"{ratio['median']:.2f} ({low:.2f} to {high:.2f})"

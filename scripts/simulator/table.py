"""A report as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def table(found: Mapping[str, Any]) -> str:
    """A paragraph a kind, a line a figure."""
    lines = ["News to everybody, in rounds      samples    p50    p99  bound  equal roots"]
    for row in found["news"]:
        lines.append(
            f"  {row['node_count']:>6} nodes, {row['loss']:4.0%} loss {row['samples']:>13}"
            f" {_said(row['rounds_p50'])} {_said(row['rounds_p99'])} {_said(row['bound'])}"
            f"  {row['equal_roots']} of {row['samples']}  {_verdict(row['kept'])}"
        )
    lines.append("A death, in seconds             first p50    max   everyone p50    max")
    for row in found["deaths"]:
        lines.append(
            f"  {row['node_count']:>6} nodes {_said(row['first_seconds_p50']):>24}"
            f" {_said(row['first_seconds_max'])} {_said(row['everyone_seconds_p50']):>14}"
            f" {_said(row['everyone_seconds_max'])}"
        )
    lines.append("Idle: bytes a second that a node sends; what its membership takes")
    for row in found["idle"]:
        lines.append(f"  {row['node_count']:>6} nodes {row['bytes_a_second_a_node']:>10} B/s")
    for row in found["memory"]:
        lines.append(f"  {row['node_count']:>6} nodes {row['bytes'] / 1e6:>10.2f} MB")
    for row in found["hours_of_loss"]:
        lines.append(
            f"{row['hours']:g} hours at {row['loss']:.0%} loss, {row['node_count']} nodes: "
            f"{row['false_deaths']} false deaths  {_verdict(row['kept'])}"
        )
    lines.append("Storms                            kept  false deaths")
    for row in found["storms"]:
        missed = f"  missed: seeds {row['missed_seeds']}" if row["missed_seeds"] else ""
        lines.append(
            f"  {row['name']:<28} {row['kept']:>3} of {row['samples']:<3}"
            f" {row['false_deaths']:>6}{missed}"
        )
    return "\n".join(lines)


def _said(value: float | None) -> str:
    return "   none" if value is None else f"{value:>6.1f}"


def _verdict(is_kept: bool) -> str:  # noqa: FBT001 - a word for each of two
    return "kept" if is_kept else "MISSED"

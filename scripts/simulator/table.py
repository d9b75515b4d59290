"""A report as people read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def table(found: Mapping[str, Any]) -> str:
    """A paragraph a kind, a line a figure."""
    lines = ["News to everybody, in rounds      samples    p50    p99  bound  equal roots"]
    lines += map(_news, found["news"])
    lines.append("A death, in seconds             first p50    max   everyone p50    max")
    lines += map(_death, found["deaths"])
    lines.append("Idle: bytes a second that a node sends")
    lines += (
        f"  {row['node_count']:>6} nodes {row['bytes_a_second_a_node']:>10}"
        for row in found["idle"]
    )
    lines.append("Megabytes that a node's membership takes")
    lines += (
        f"  {row['node_count']:>6} nodes {row['bytes'] / 1e6:>10.2f}" for row in found["memory"]
    )
    lines += (
        f"{row['hours']:g} hours at {row['loss']:.0%} loss, {row['node_count']} nodes: "
        f"{row['false_deaths']} false deaths  {_verdict(row)}"
        for row in found["hours_of_loss"]
    )
    lines.append("Storms                            kept  false deaths")
    lines += map(_storm, found["storms"])
    return "\n".join(lines)


def _news(row: Mapping[str, Any]) -> str:
    return (
        f"  {row['node_count']:>6} nodes, {row['loss']:4.0%} loss {row['samples']:>13}"
        f" {_said(row['rounds_p50'])} {_said(row['rounds_p99'])} {_said(row['bound'])}"
        f"  {row['equal_roots']} of {row['samples']}  {_verdict(row)}"
    )


def _death(row: Mapping[str, Any]) -> str:
    return (
        f"  {row['node_count']:>6} nodes {_said(row['first_seconds_p50']):>24}"
        f" {_said(row['first_seconds_max'])} {_said(row['everyone_seconds_p50']):>14}"
        f" {_said(row['everyone_seconds_max'])}"
    )


def _storm(row: Mapping[str, Any]) -> str:
    missed = f"  missed: seeds {row['missed_seeds']}" if row["missed_seeds"] else ""
    return (
        f"  {row['name']:<28} {row['kept']:>3} of {row['samples']:<3}"
        f" {row['false_deaths']:>6}{missed}"
    )


def _said(value: float | None) -> str:
    return "   none" if value is None else f"{value:>6.1f}"


def _verdict(row: Mapping[str, Any]) -> str:
    return "kept" if row["kept"] else "MISSED"

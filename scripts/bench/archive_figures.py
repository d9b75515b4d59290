"""The arithmetic of the archive's benchmark: what a turn tells, and what the goals ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scripts.bench.intervals import summary
from scripts.bench.network_namespaces import FAST
from scripts.bench.restored_memory import slope

if TYPE_CHECKING:
    from scripts.bench.archive_sides import Memory

OVER_FULL_GOAL = 0.7
OVER_FULL_CONTEXT = 8192
FAST_SIDE = f"restored, archive over {FAST.name}"
FULL_SIDE = "full"
WIRE_SPREAD = 1.05
"""Most over least: acknowledgements come as the kernels like."""


@dataclass(frozen=True, slots=True)
class Turn:
    """So many tokens committed, `size` at a time; `wire_bytes` None when nobody counted them."""

    size: int
    tokens: int
    seconds: float
    payload_bytes: int
    wire_bytes: int | None


@dataclass(slots=True)
class Turns:
    """All of one side at one context, by block size."""

    found: dict[int, list[Turn]] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        """Adds one."""
        self.found.setdefault(turn.size, []).append(turn)

    def summary(self, memory: Memory) -> dict[str, Any]:
        """For JSON; speeds by turn stay, for ratios turn by turn."""
        return {
            "memory": asdict(memory),
            "blocks": {str(size): _cell(turns) for size, turns in self.found.items()},
        }


def _cell(turns: Sequence[Turn]) -> dict[str, Any]:
    speeds = [turn.tokens / turn.seconds for turn in turns]
    wires = [turn.wire_bytes / turn.tokens for turn in turns if turn.wire_bytes is not None]
    payloads = {turn.payload_bytes / turn.tokens for turn in turns}
    return {
        "tokens_per_second": summary(speeds),
        "tokens_per_second_by_turn": speeds,
        "payload_bytes_a_token": sorted(payloads),
        "wire_bytes_a_token": summary(wires) if wires else None,
    }


def merged(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Contexts of both in ascending order, `new` ones in the place of the same."""
    by_tokens = {cell["context_tokens"]: cell for cell in (*old, *new)}
    return [by_tokens[tokens] for tokens in sorted(by_tokens)]


def over_full(cell: Mapping[str, Any], name: str, size: str) -> dict[str, Any] | None:
    """A side's speed over full attention's, turn by turn where they took turns; None where
    either is missing.
    """
    speeds = []
    for side in (name, FULL_SIDE):
        found = cell["sides"].get(side, {}).get("blocks", {}).get(size)
        if found is None:
            return None
        speeds.append(found["tokens_per_second_by_turn"])
    return summary([one / two for one, two in zip(*speeds, strict=True)])


def verdict(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each goal with the figures it asks for, and whether it is met; None where not measured."""
    ratios = {
        str(cell["context_tokens"]): {
            name: {size: over_full(cell, name, size) for size in side.get("blocks", {})}
            for name, side in cell["sides"].items()
            if name != FULL_SIDE
        }
        for cell in cells
    }
    remote = [name for name in _names(cells) if "over " in name]
    slopes = {name: _slope(cells, name) for name in _names(cells) if name != FULL_SIDE}
    payloads = {name: _payloads(cells, name) for name in remote}
    wires = {name: _wire_spread(cells, name) for name in remote}
    fast = ratios.get(str(OVER_FULL_CONTEXT), {}).get(FAST_SIDE, {}).get("1")
    beyond = [cell for cell in cells if cell["sides"][FULL_SIDE].get("left_out")]
    ahead = {
        str(cell["context_tokens"]): _speed(cell, FAST_SIDE)
        for cell in beyond
        if _speed(cell, FAST_SIDE) is not None
    }
    known = [value for value in slopes.values() if value is not None]
    spreads = [value for value in wires.values() if value is not None]
    return {
        "over_full": ratios,
        "verifier_kv_bytes_slope": slopes,
        "slope_is_zero": all(value == 0.0 for value in known) if known else None,
        "payload_bytes_a_token": payloads,
        "wire_bytes_most_over_least": wires,
        "bytes_are_constant": (
            all(len(found) == 1 for sizes in payloads.values() for found in sizes.values())
            and all(most <= WIRE_SPREAD for sizes in spreads for most in sizes.values())
            if payloads and len(cells) > 1
            else None
        ),
        "remote_over_full_goal": OVER_FULL_GOAL,
        "remote_over_full_met": None if fast is None else fast["median"] >= OVER_FULL_GOAL,
        "tokens_per_second_where_full_does_not_fit": ahead,
        "ahead_where_full_does_not_fit": all(ahead.values()) if ahead else None,
    }


def _names(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for cell in cells for name in cell["sides"]))


def _measured(cells: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, Mapping[str, Any]]]:
    return [
        (cell["context_tokens"], cell["sides"][name])
        for cell in cells
        if "blocks" in cell["sides"].get(name, {})
    ]


def _slope(cells: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Bytes of the verifier's K/V a token of context."""
    found = _measured(cells, name)
    if len(found) < 2:
        return None
    return slope(
        [tokens for tokens, _ in found],
        [side["memory"]["verifier_kv_bytes"] for _, side in found],
    )


def _payloads(cells: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[float]]:
    """Every number of bytes a token that was met, by block size."""
    found: dict[str, set[float]] = {}
    for _, side in _measured(cells, name):
        for size, cell in side["blocks"].items():
            found.setdefault(size, set()).update(cell["payload_bytes_a_token"])
    return {size: sorted(values) for size, values in found.items()}


def _wire_spread(cells: Sequence[Mapping[str, Any]], name: str) -> dict[str, float] | None:
    """The most over the least bytes a token on the wire, by block size, over all contexts."""
    found: dict[str, list[float]] = {}
    for _, side in _measured(cells, name):
        for size, cell in side["blocks"].items():
            if cell["wire_bytes_a_token"] is not None:
                found.setdefault(size, []).append(cell["wire_bytes_a_token"]["median"])
    return {size: max(values) / min(values) for size, values in found.items()} or None


def _speed(cell: Mapping[str, Any], name: str) -> float | None:
    found = cell["sides"].get(name, {}).get("blocks", {}).get("1")
    return None if found is None else float(found["tokens_per_second"]["median"])

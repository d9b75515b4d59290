"""Names of nodes: for people, so they need not be unique; look-ups want one node all the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def free_name(name: str, taken: Collection[str]) -> str:
    """The next name after `name` that nobody has: `mini-2` after `mini-1`, else with a number."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if digits:
        number = int(digits) + 1
    else:
        stem, number = f"{name}-", 2
    while f"{stem}{number}" in taken:
        number += 1
    return f"{stem}{number}"


def shared_names(named: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Of (node id, name), the names that several nodes have, each with their ids."""
    ids: dict[str, list[str]] = {}
    for node_id, name in named:
        ids.setdefault(name, []).append(node_id)
    return {name: tuple(found) for name, found in sorted(ids.items()) if len(found) > 1}

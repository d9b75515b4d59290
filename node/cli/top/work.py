"""What a node does in each of its roles, as `fleet top` shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kakeya import NodeSample, Role
from kakeya_fleet.node.cli.terminal.quantities import (
    bytes_text,
    share_of_bytes_text,
    short_speed,
    speed_text,
    told_share_text,
)
from kakeya_fleet.node.cli.top.watched_fleet import WatchedNode

_ROLES = (Role.VERIFIER, Role.PROPOSER, Role.ARCHIVE)

_MEASURES: dict[Role, Callable[[NodeSample], float]] = {
    Role.VERIFIER: lambda sample: sample.tokens_per_second,
    Role.PROPOSER: lambda sample: sample.drafts_per_second,
    Role.ARCHIVE: lambda sample: sample.archive_bytes,
}


def roles_of(node: WatchedNode) -> list[Role]:
    """The roles that a node serves, the one that it is known by first."""
    served = {model.role for model in node.status.models}
    if node.status.archive is not None:
        served.add(Role.ARCHIVE)
    return [role for role in _ROLES if role in served]


def work_text(node: WatchedNode, width: int) -> str:
    """`64.5 t/s, 12.3 d/s, 1.20 GiB`: as many of its roles as fit; `-` while unknown.

    Tokens a second, drafts a second for others, and bytes kept for others.
    """
    latest = node.latest
    if latest is None:
        return "-"
    words = [_amount_text(role, _MEASURES[role](latest)) for role in roles_of(node)]
    while len(words) > 1 and len(", ".join(words)) > width:
        words.pop()
    return ", ".join(words) or "-"


def work_facts(node: WatchedNode) -> list[tuple[str, str]]:
    """What a node does in each of its roles, a titled sentence each; none while unknown."""
    latest = node.latest
    if latest is None:
        return []
    facts = []
    roles = roles_of(node)
    if Role.VERIFIER in roles:
        speed = speed_text(latest.tokens_per_second) if latest.tokens_per_second else "0 tok/s"
        facts.append(("verifies", f"{speed}, reads {latest.prefill_tokens_per_second:.0f} tok/s"))
    if Role.PROPOSER in roles:
        facts.append(("drafts", f"{latest.drafts_per_second:.1f} blocks/s for sessions anywhere"))
    archive = node.status.archive
    if archive is not None:
        kept = share_of_bytes_text(latest.archive_bytes, archive.capacity_bytes)
        facts.append(("keeps", f"{kept} for verifiers"))
    return facts


def use_facts(latest: NodeSample) -> list[tuple[str, str]]:
    """How busy what computes is: its cores, and an accelerator that tells."""
    facts = []
    if latest.cpu_share is not None:
        own = told_share_text(latest.process_cpu_share)
        facts.append(("cpu", f"{told_share_text(latest.cpu_share)} busy, {own} by this node"))
    if latest.accelerator_share is not None:
        facts.append(("accelerator", f"{told_share_text(latest.accelerator_share)} busy"))
    return facts


def measure_of(node: WatchedNode) -> Callable[[NodeSample], float]:
    """What a node's sparkline tells: its work in the role that it is known by."""
    return _MEASURES[_first_role(node)]


def most_text(node: WatchedNode, amounts: Sequence[float]) -> str:
    """The largest of such amounts, as `work_text` has it."""
    return _amount_text(_first_role(node), max(amounts))


def tops_of(nodes: Iterable[WatchedNode], seconds: int) -> dict[Role, float]:
    """The largest work of the latest `seconds` by role: the height of a full sparkline."""
    tops: dict[Role, float] = {}
    for node in nodes:
        if not node.is_alive:
            continue
        role, measure = _first_role(node), measure_of(node)
        tops[role] = max([tops.get(role, 0.0), *map(measure, list(node.samples)[-seconds:])])
    return tops


def top_for(node: WatchedNode, tops: dict[Role, float]) -> float:
    """The height of a full sparkline of this node."""
    return tops.get(_first_role(node), 0.0)


def _first_role(node: WatchedNode) -> Role:
    """A node without a role is drawn as one that verifies nothing."""
    return next(iter(roles_of(node)), Role.VERIFIER)


def _amount_text(role: Role, amount: float) -> str:
    if role is Role.ARCHIVE:
        return bytes_text(int(amount))
    unit = "t/s" if role is Role.VERIFIER else "d/s"
    return f"{short_speed(amount) if amount > 0 else '0'} {unit}"

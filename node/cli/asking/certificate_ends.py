"""When members' certificates end, by their cards."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya import Liveness, NodeStatus

DAY = 86_400.0
LATE_DAYS = 3.0
"""Left of seven where a keeper should have renewed it: members ask from half of its life on."""


def ends_unix(node: NodeStatus) -> float | None:
    """When the node's certificate ends, seconds since 1970; None where its card has none."""
    from cryptography import x509

    if node.card is None or not node.card.certificate:
        return None
    try:
        certificate = x509.load_der_x509_certificate(bytes.fromhex(node.card.certificate))
    except ValueError:
        return None
    return certificate.not_valid_after_utc.timestamp()


def first_end(nodes: Iterable[NodeStatus]) -> tuple[NodeStatus, float] | None:
    """The live member whose certificate ends first, and when."""
    found = [
        (ends, node)
        for node in nodes
        if node.liveness is Liveness.ALIVE and (ends := ends_unix(node)) is not None
    ]
    if not found:
        return None
    ends, node = min(found, key=lambda each: each[0])
    return node, ends


def late_line(nodes: Iterable[NodeStatus], now_unix: float) -> str:
    """A sentence when a certificate was not renewed in time, else empty."""
    first = first_end(nodes)
    if first is None or first[1] - now_unix > LATE_DAYS * DAY:
        return ""
    return (
        f"{first[0].name}'s certificate {ends_text(first[1], now_unix)}, and no keeper has renewed "
        "it: start a keeper; `fleet members` says who is one."
    )


def ends_text(ends: float, now_unix: float) -> str:
    """`ends in 2.1 days` or `has ended`."""
    return f"ends in {(ends - now_unix) / DAY:.1f} days" if ends > now_unix else "has ended"

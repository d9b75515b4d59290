"""What a node says of itself by multicast DNS, and that it cannot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a node says of itself by multicast DNS. `addresses` are IPs."""

    node_id: str
    fleet_name: str
    addresses: tuple[str, ...]
    port: int


class MulticastFailed(Exception):
    """The library or the network gave up; the message is for people."""

"""The secret of a road, which the control stream gave to both of its ends."""

from __future__ import annotations

from kakeya_fleet.node.links.roads.contract import RoadFailed

MIN_NONCE_BYTES = 16
MAX_NONCE_BYTES = 64


def check_nonce(nonce: bytes) -> None:
    """Raises `RoadFailed` when it is too short to be a secret, or too long for a segment."""
    if not MIN_NONCE_BYTES <= len(nonce) <= MAX_NONCE_BYTES:
        raise RoadFailed(
            f"a nonce has {MIN_NONCE_BYTES} to {MAX_NONCE_BYTES} bytes, not {len(nonce)}"
        )

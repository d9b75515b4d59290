"""What is at an address where a call failed."""

from __future__ import annotations

from kakeya_fleet.fleet.diagnosis.reach import Answer
from kakeya_fleet.node.membership.seed_diagnosis import Presence, look

_ANSWERS = {
    Presence.NOTHING: Answer.REFUSED,
    Presence.NO_NAME: Answer.NO_NAME,
    Presence.NO_ROAD: Answer.NO_ROAD,
    Presence.SILENT: Answer.SILENT,
    Presence.GRPC: Answer.SILENT,
    Presence.ANOTHER: Answer.NOT_A_NODE,
}


async def answer_at(address: str) -> Answer:
    """By its first bytes, in 2 seconds at most."""
    return _ANSWERS[await look(address)]

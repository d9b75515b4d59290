"""What one message of an exchange may carry, for those who ask and those who answer alike."""

from __future__ import annotations

from collections.abc import Mapping

from kakeya_fleet.fleet.membership.digest import MAX_DIGEST_LINES
from kakeya_fleet.fleet.membership.reconciliation import (
    MAX_CARDS_A_MESSAGE,
    MAX_RUMOURS_A_MESSAGE,
    MAX_WANTED_KEYS,
)

REQUEST_LIMITS: Mapping[str, int] = {
    "cards": MAX_CARDS_A_MESSAGE,
    "rumours": MAX_RUMOURS_A_MESSAGE,
    "wanted_node_keys": MAX_WANTED_KEYS,
}
"""Of ExchangeCapabilitiesRequest: the most elements of each field."""
ANSWER_LIMITS: Mapping[str, int] = {
    "cards": MAX_CARDS_A_MESSAGE,
    "rumours": MAX_RUMOURS_A_MESSAGE,
    "digest": MAX_DIGEST_LINES,
    "skipped": MAX_CARDS_A_MESSAGE,
}
"""Of ExchangeCapabilitiesResponse."""

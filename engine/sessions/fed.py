"""A session's forward under way."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.sessions.session_features import SessionFeatures


@dataclass(frozen=True, slots=True)
class Fed:
    """A forward under way: `token_ids` behind what `cache` holds.

    `history_length` is that when it was asked for; `features` is where the hidden
    states of its tapped layers go.
    """

    cache: KvCache
    token_ids: list[int]
    history_length: int
    features: SessionFeatures | None

"""Which restorer a `restored` cache has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RestorerKind(StrEnum):
    """What is kept of evicted positions."""

    IDENTITY = "identity"
    """Their keys and values, in the verifier's process: a check of the plumbing only."""
    ARCHIVE = "archive"
    """Their keys and values, in another process: exact."""
    PROJECTION = "projection"
    """Keys and values that a learned map makes of one context vector each, in another process.

    Fewer bytes are deposited, as many are kept.
    """


@dataclass(frozen=True, slots=True)
class RestorerSpec:
    """Which restorer; two streams with equal ones are equal.

    `model_id` names the learned map of `projection`, `digest` is the SHA-256 of its
    weights and of the encoder's, and `width` the values of one context vector; all
    are empty for the other kinds. `codec` names one of `engine.codecs.known` that keys
    and values are packed by, tile by tile; empty where they stay as they lie in the cache.
    """

    kind: RestorerKind
    model_id: str = ""
    digest: str = ""
    width: int = 0
    codec: str = ""

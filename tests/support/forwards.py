"""Forwards whose logits are wanted: what every verifier answers then."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Logits, Output, Verifier


def logits_of(verifier: Verifier, cache: KvCache, token_ids: Sequence[int]) -> Logits:
    """The logits [n, vocabulary_size] of a forward of one feed."""
    logits = verifier.forward(cache, token_ids, want_logits=True)
    assert logits is not None
    return logits


def told(output: Output) -> Logits:
    """The logits of a feed that wanted them."""
    assert output.logits is not None
    return output.logits

"""Reading a text through a cache, as the engine reads prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier


def chunk_tokens(verifier: Verifier, cache: KvCache) -> int:
    """The most tokens of a forward into `cache`."""
    return min(cache.widest, verifier.row_counts[-1])


TokenIds = Sequence[int] | npt.NDArray[np.integer]


def read(verifier: Verifier, cache: KvCache, token_ids: TokenIds) -> None:
    """Writes the tokens' K/V."""
    for part in parts(token_ids, chunk_tokens(verifier, cache)):
        verifier.forward(cache, part, want_logits=False)


def logits_of(verifier: Verifier, cache: KvCache, token_ids: TokenIds) -> Logits:
    """Writes the tokens' K/V; what follows each of them, [n, vocabulary_size]."""
    found = []
    for part in parts(token_ids, chunk_tokens(verifier, cache)):
        logits = verifier.forward(cache, part, want_logits=True)
        if logits is None:
            raise TypeError("a verifier that was asked for logits gave none")
        found.append(logits)
    return np.concatenate(found)


def parts(token_ids: TokenIds, size: int) -> Iterator[list[int]]:
    """`token_ids` in order, `size` at a time."""
    for start in range(0, len(token_ids), size):
        yield [int(token) for token in token_ids[start : start + size]]

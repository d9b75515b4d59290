"""How far a codec moves what a verifier chooses, on one history: computed full, and packed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier

LEAST_TOKENS, MOST_TOKENS = 256, 1024
"""Of a history's beginning, since positions matter: below it next to nothing is packed, above it
a sampling takes long."""
POSITIONS = 16
"""Compared of one history: each `_STRIDE`-th of its latest, since neighbours are alike."""
_STRIDE = 4


class GaveWay(Exception):
    """The sampling is over: a session has its memory."""


class CodecSample:
    """One history, computed twice, a chunk a step: with a full cache, and with a packed one.

    `step` and `release` are called in the verifier's thread. One cache exists at a time.
    """

    def __init__(self, verifier: Verifier, token_ids: Sequence[int], codec: str) -> None:
        """The beginning of `token_ids`, at least `LEAST_TOKENS`; takes no memory yet."""
        self._verifier = verifier
        self._token_ids = tuple(token_ids[:MOST_TOKENS])
        length = len(self._token_ids)
        self._places = range(length - 1 - _STRIDE * (POSITIONS - 1), length, _STRIDE)
        self._specs = (
            CacheSpec(CacheKind.CONTIGUOUS, capacity=length),
            CacheSpec(CacheKind.PACKED, capacity=length, sink=TILE, window=TILE, codec=codec),
        )
        self._cache: KvCache | None = None
        self._sides: list[list[Logits]] = []
        self._has_left = False

    @property
    def bytes_needed(self) -> int:
        """Bytes of the verifier's pool that it takes at most."""
        return max(map(self._verifier.bytes_needed, self._specs))

    @property
    def nbytes(self) -> int:
        """Bytes of the pool that it has now. Any thread may ask."""
        cache = self._cache
        return 0 if cache is None else cache.memory_bytes

    @property
    def is_done(self) -> bool:
        """Whether both sides are computed."""
        return len(self._sides) == len(self._specs) and self._cache is None

    def step(self) -> bool:
        """Computes the next chunk; whether that was the last.

        Nobody gives way to it. Raises what `Verifier.allocate` and `forward` raise, and
        `GaveWay` where it had to leave since the last step.
        """
        if self._has_left:
            raise GaveWay("a session needed the memory of a sampling")
        cache = self._cache
        if cache is None:
            cache = self._cache = self._verifier.allocate(self._specs[len(self._sides)])
            self._sides.append([])
        first = cache.length
        most = min(cache.widest, self._verifier.row_counts[-1])
        chunk = self._token_ids[first : first + most]
        rows = [place - first for place in self._places if first <= place < first + len(chunk)]
        logits = self._verifier.forward(cache, chunk, want_logits=bool(rows))
        if logits is not None:
            self._sides[-1].append(logits[rows])
        if cache.length == len(self._token_ids):
            self.release()
        return self.is_done

    def nats(self) -> tuple[float, ...]:
        """KL(full || packed) of each position, ascending, once it is done.

        Raises `ValueError` for logits that are not finite.
        """
        full, packed = (_log_probabilities(np.concatenate(each)) for each in self._sides)
        found = (np.exp(full) * (full - packed)).sum(axis=1)
        if not np.isfinite(found).all():
            raise ValueError("a forward gave numbers that are not finite")
        return tuple(max(0.0, float(each)) for each in found)

    def leave(self) -> None:
        """Gives its memory to a session that needs it, and ends. See `engine.sessions.guest`."""
        self._has_left = True
        self.release()

    def release(self) -> None:
        """Gives its memory back; a second call does nothing."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.release()


def _log_probabilities(logits: Logits) -> np.ndarray:
    """[positions, vocabulary], float64."""
    numbers = logits.astype(np.float64)
    numbers -= numbers.max(axis=1, keepdims=True)
    numbers -= np.log(np.exp(numbers).sum(axis=1, keepdims=True))
    return numbers

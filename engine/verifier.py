"""The contract of verifiers: what a back end offers to the rest of the engine.

Every forward has one fixed query width, so that one kernel, and with it one
rounding, serves a token whatever block it comes in: the K/V and the logits of
a position are then a function of the history alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.cache import CacheSpec, KvCache

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VerifierInfo:
    """What a loaded verifier is.

    `context_length` is the longest history in tokens; `kv_bytes_per_token` the
    K/V bytes of one resident position over all layers; `width` the queries of
    every forward, so that a block holds at most `width - 1` drafted tokens.
    """

    model_id: str
    architecture: str
    weights_digest: str
    tokenizer_digest: str
    quantization: str
    dtype: str
    vocabulary_size: int
    context_length: int
    kv_bytes_per_token: int
    width: int


class Verifier(Protocol):
    """A loaded autoregressive model. Calls come from one thread at a time."""

    @property
    def info(self) -> VerifierInfo:
        """What it is."""
        ...

    def allocate(self, spec: CacheSpec) -> KvCache:
        """A new, empty cache. Raises `KvStrategyUnsupported` or `BadParameters`."""
        ...

    def clone(self, cache: KvCache) -> KvCache:
        """An independent copy with the same contents."""
        ...

    def bytes_needed(self, spec: CacheSpec) -> int:
        """`memory_bytes` that `allocate(spec)` would have, without allocating."""
        ...

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """Runs 1 to `width` tokens at positions `cache.length` onwards.

        Their K/V are written provisionally. Returns float32 logits
        [len(token_ids), vocabulary_size] when wanted, else None. Raises
        `ContextExceeded` with nothing written when the positions or the
        cache's capacity do not hold them.
        """
        ...

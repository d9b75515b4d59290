"""Who computes a model's next tokens: a verifier here, or llama.cpp on a GGUF file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sampling.choice import GREEDY, choose_token
from scripts.bench.asked_process import Asked

CHUNK = 64


class QualitySide(Protocol):
    """Full attention over one history."""

    def log_probabilities(self, tokens: Sequence[int], places: Sequence[int]) -> np.ndarray:
        """Behind the tokens at `places`, ascending: [places, vocabulary], float64."""
        ...

    def continued(self, prompt: Sequence[int], count: int) -> list[int]:
        """So many tokens behind a prompt, greedily."""
        ...


class OwnSide:
    """A verifier of this engine."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def cache_of(self, positions: int) -> KvCache:
        """A new cache of so many positions."""
        return self._verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=positions))

    def before(self, cache: KvCache, first: int) -> None:
        """What is to be done to a cache before the forward of the tokens from `first` on."""

    def log_probabilities(self, tokens: Sequence[int], places: Sequence[int]) -> np.ndarray:
        """See `QualitySide`."""
        cache = self.cache_of(len(tokens))
        found = []
        for first in range(0, len(tokens), CHUNK):
            self.before(cache, first)
            logits = self._verifier.forward(cache, tokens[first : first + CHUNK], want_logits=True)
            assert logits is not None
            rows = [place - first for place in places if first <= place < first + CHUNK]
            found.append(normalized(logits[rows].astype(np.float64)))
        cache.release()
        return np.concatenate(found)

    def continued(self, prompt: Sequence[int], count: int) -> list[int]:
        """See `QualitySide`."""
        cache = self.cache_of(len(prompt) + count)
        for first in range(0, len(prompt) - 1, CHUNK):
            part = prompt[first : min(first + CHUNK, len(prompt) - 1)]
            self.before(cache, first)
            self._verifier.forward(cache, part, want_logits=False)
        found = [prompt[-1]]
        for place in range(count):
            self.before(cache, len(prompt) - 1 + place)
            logits = self._verifier.forward(cache, found[-1:], want_logits=True)
            assert logits is not None
            found.append(choose_token(logits[0], GREEDY, len(prompt) + place))
        cache.release()
        return found[1:]


class LlamaSide:
    """llama.cpp's server, asked a prompt at a time; it keeps the one before."""

    def __init__(self, asked: Asked, vocabulary_size: int) -> None:
        self._asked = asked
        self._size = vocabulary_size

    def log_probabilities(self, tokens: Sequence[int], places: Sequence[int]) -> np.ndarray:
        """See `QualitySide`."""
        found = np.full((len(places), self._size), -np.inf)
        for row, place in enumerate(places):
            prompt = list(tokens[: place + 1])
            told = self._asked({"prompt": prompt, "count": 1, "top": self._size, "keep": True})
            for token, log_probability in told["log_probabilities"]:
                found[row, token] = log_probability
        # What is so improbable that its logarithm is told as the least number there is.
        return normalized(np.maximum(found, -100.0))

    def continued(self, prompt: Sequence[int], count: int) -> list[int]:
        """See `QualitySide`."""
        tokens: list[int] = self._asked({"prompt": list(prompt), "count": count})["tokens"]
        return tokens


def normalized(logits: np.ndarray) -> np.ndarray:
    """Logarithms of probabilities, row by row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found

"""A verifier without weights that obeys the position rule to the letter.

Two layers of hashes stand in for attention: a position's second-layer key
hashes the first-layer keys that it may see, its logits the second-layer keys
that it may see. So a window that is one too wide, a rollback that leaves a
trace or a cache shared between sessions changes the stream, also for what the
prefill did long before. The previous token's fixed successor is favoured, so
that text repeats itself as text does and prompt lookup finds something.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.cache import CacheKind, CacheSpec
from engine.errors import ContextExceeded
from engine.sampling import SamplingParameters, choose_token
from engine.verifier import VerifierInfo

VOCABULARY = 48
FAVOUR = 0.93
_ODD = np.uint64(0x9E3779B97F4A7C15)


def _mix(values):
    """splitmix64's finaliser, on arrays: they wrap around where scalars warn."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _first_key(token: int, position: int):
    return _mix(np.array([token + 1], np.uint64) * _ODD + np.uint64(position))[0]


def _second_key(seen, position: int):
    total = seen.sum(dtype=np.uint64, keepdims=True)
    return _mix(total + np.array([position], np.uint64) * _ODD)[0]


def _logits(seen, token: int):
    noise = _mix(
        seen.sum(dtype=np.uint64, keepdims=True) + np.arange(VOCABULARY, dtype=np.uint64) * _ODD
    )
    row = (noise >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
    row[(token * 5 + 7) % VOCABULARY] += np.float32(FAVOUR)
    return row


def _visible(position: int, spec: CacheSpec):
    if spec.kind is CacheKind.CONTIGUOUS or position < spec.sink + spec.window:
        return np.arange(position + 1)
    recent = np.arange(position - spec.window + 1, position + 1)
    return np.concatenate([np.arange(spec.sink), recent])


class HashCache:
    def __init__(self, spec: CacheSpec, width: int) -> None:
        self.spec = spec
        self.length = 0
        self.last_start = 0
        windowed = spec.kind is CacheKind.SINK_WINDOW
        self._sink = spec.sink if windowed else 0
        self._ring = spec.window + width if windowed else spec.capacity
        self.first = np.zeros(self._sink + self._ring, np.uint64)
        self.second = np.zeros_like(self.first)

    @property
    def resident(self) -> int:
        if self.spec.kind is CacheKind.CONTIGUOUS:
            return self.length
        return min(self.length, self.spec.sink + self.spec.window - 1)

    @property
    def memory_bytes(self) -> int:
        return self.first.nbytes + self.second.nbytes

    def slots(self, positions):
        behind = self._sink + (positions - self._sink) % self._ring
        return np.where(positions < self._sink, positions, behind)

    def truncate(self, length: int) -> None:
        if not self.last_start <= length <= self.length:
            raise ValueError(f"{length} is outside {self.last_start} to {self.length}")
        self.length = length


class HashVerifier:
    def __init__(self, context_length: int = 4096, width: int = 16) -> None:
        self.info = VerifierInfo(
            model_id="hash",
            architecture="hash",
            weights_digest="0" * 64,
            tokenizer_digest="0" * 64,
            quantization="",
            dtype="uint64",
            vocabulary_size=VOCABULARY,
            context_length=context_length,
            kv_bytes_per_token=16,
            width=width,
        )
        self.forward_count = 0

    def allocate(self, spec: CacheSpec) -> HashCache:
        return HashCache(spec, self.info.width)

    def clone(self, cache: HashCache) -> HashCache:
        copy = HashCache(cache.spec, self.info.width)
        copy.length, copy.last_start = cache.length, cache.last_start
        copy.first[:], copy.second[:] = cache.first, cache.second
        return copy

    def bytes_needed(self, spec: CacheSpec) -> int:
        if spec.kind is CacheKind.CONTIGUOUS:
            return 16 * spec.capacity
        return 16 * (spec.sink + spec.window + self.info.width)

    def forward(self, cache: HashCache, token_ids: Sequence[int], *, want_logits: bool):
        assert 1 <= len(token_ids) <= self.info.width
        start, end = cache.length, cache.length + len(token_ids)
        contiguous = cache.spec.kind is CacheKind.CONTIGUOUS
        if end > self.info.context_length or (contiguous and end > cache.spec.capacity):
            raise ContextExceeded("the cache is full")
        self.forward_count += 1
        cache.last_start = start
        rows = []
        positions = np.arange(start, end)
        for position, token in zip(positions, token_ids, strict=True):
            cache.first[cache.slots(position)] = _first_key(token, int(position))
        for position, token in zip(positions, token_ids, strict=True):
            seen = cache.slots(_visible(int(position), cache.spec))
            cache.second[cache.slots(position)] = _second_key(cache.first[seen], int(position))
            if want_logits:
                rows.append(_logits(cache.second[seen], token))
        cache.length = end
        return np.stack(rows) if want_logits else None


def expected_stream(
    prompt: Sequence[int], spec: CacheSpec, count: int, sampling: SamplingParameters
) -> list[int]:
    """What any session must generate: from the rule alone, with no cache at all."""
    tokens, first, second = list(prompt), [], []
    while True:
        for position in range(len(first), len(tokens)):
            first.append(_first_key(tokens[position], position))
            seen = np.array(first, np.uint64)[_visible(position, spec)]
            second.append(_second_key(seen, position))
        if len(tokens) == len(prompt) + count:
            return tokens[len(prompt) :]
        last = len(tokens) - 1
        row = _logits(np.array(second, np.uint64)[_visible(last, spec)], tokens[last])
        tokens.append(choose_token(row, sampling, len(tokens)))

"""A verifier without weights that obeys the position rule to the letter.

Two layers of hashes stand in for attention: a position's second-layer key
hashes the first-layer keys that it may see, its logits the second-layer keys
that it may see. So a window that is one too wide, a rollback that leaves a
trace, a slab that two sessions write to or that is read after its release
changes the stream, also for what the prefill did long before. The previous
token's fixed successor is favoured, so that text repeats itself as text does
and prompt lookup finds something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Never, cast

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.positions import round_up
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.errors import (
    BadParameters,
    ContextExceeded,
    KvStrategyUnsupported,
    TokenOutOfVocabulary,
)
from kakeya_fleet.engine.memory.slab_pool import Slab, SlabPool
from kakeya_fleet.engine.sampling.choice import SamplingParameters, choose_token
from kakeya_fleet.engine.sessions.session import Session

Keys = NDArray[np.uint64]
Positions = NDArray[np.int64]

VOCABULARY = 48
FAVOUR = 0.93
SEGMENT = 8
"""Slots of a slab: few, so that short histories share some and part with others."""
SLOT_BYTES = 16
SLAB_BYTES = SEGMENT * SLOT_BYTES
ROW_COUNTS = (2, 4, 8, 16, 32, 64)
POISON = np.uint64(0xDEADDEADDEADDEAD)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_WORD = (1 << 64) - 1
_NOISE = np.arange(VOCABULARY, dtype=np.uint64) * _ODD


def _mix(values: Keys) -> Keys:
    """splitmix64's finaliser, on arrays: they wrap around where scalars warn."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _mix_word(word: int) -> int:
    """The same of one number, without an array of one."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _first_key(token: int, position: int) -> int:
    return _mix_word(((token + 1) * int(_ODD) + position) & _WORD)


def _second_key(seen: Keys, position: int) -> int:
    return _mix_word((int(seen.sum(dtype=np.uint64)) + position * int(_ODD)) & _WORD)


def _logits(seen: Keys, token: int) -> Logits:
    noise = _mix(seen.sum(dtype=np.uint64, keepdims=True) + _NOISE)
    row = (noise >> np.uint64(40)).astype(np.float32) / np.float32(2**24)
    row[(token * 5 + 7) % VOCABULARY] += np.float32(FAVOUR)
    return row


def _visible(position: int, spec: CacheSpec) -> Positions:
    if spec.kind is CacheKind.CONTIGUOUS or position < spec.sink + spec.window:
        return np.arange(position + 1)
    recent = np.arange(position - spec.window + 1, position + 1)
    return np.concatenate([np.arange(spec.sink), recent])


class SlotRule:
    """Position p is in slot p below `sink`, else in the ring of `ring` slots behind it."""

    def __init__(self, spec: CacheSpec, context_length: int, width: int) -> None:
        self.ringed = spec.kind is CacheKind.SINK_WINDOW
        if self.ringed:
            self.sink, window = min(spec.sink, context_length), min(spec.window, context_length)
            self.slots = round_up(self.sink + window + width - 1, SEGMENT)
            self.ring = self.slots - self.sink
            self.spare = self.ring - window
            self.limit = context_length
        else:
            self.sink, self.spare, self.limit = 0, 0, spec.capacity
            self.slots = self.ring = round_up(spec.capacity, SEGMENT)
        self.first_slabs = 1 if spec.grows else self.slots // SEGMENT

    @property
    def widest(self) -> int:
        return self.spare + 1 if self.ringed else self.slots

    def slot(self, positions: Positions) -> Positions:
        behind = self.sink + (positions - self.sink) % self.ring
        return np.where(positions < self.sink, positions, behind)

    def seen(self, position: int, spec: CacheSpec) -> Positions:
        """The slots of what the token at `position` may see."""
        visible = _visible(position, spec)
        # What the ring has not gone round yet is in order.
        return visible if position < self.slots else self.slot(visible)

    def forkable_from(self, written: int) -> int:
        return max(0, written - 1 - self.spare) if self.ringed else 0

    def shares(self, length: int, fixed: int, written: int) -> list[bool | None]:
        """Of each slab for a fork: None taken anew, else whether somebody will write to it."""
        found: list[bool | None] = []
        for first in range(0, self.slots, SEGMENT):
            last = first + SEGMENT
            if first >= length and (not self.ringed or written <= self.slots):
                found.append(None)
            else:
                stays = last <= self.sink or not self.ringed
                found.append(not (stays and last <= min(length, fixed)))
        return found


class HashCache:
    """Slabs [2, SEGMENT] of first and second keys. What was released is POISON."""

    def __init__(
        self, spec: CacheSpec, rule: SlotRule, pool: SlabPool[Keys], slabs: list[Slab[Keys]]
    ) -> None:
        self.spec = spec
        self.rule = rule
        self.length = 0
        self.last_start = 0
        self.written = 0
        self.slabs = slabs
        self.released = False
        self._pool = pool

    @property
    def resident(self) -> int:
        if self.spec.kind is CacheKind.CONTIGUOUS:
            return self.length
        return min(self.length, self.spec.sink + self.spec.window - 1)

    @property
    def memory_bytes(self) -> int:
        return sum(slab.payload.nbytes for slab in self.slabs)

    @property
    def freed_bytes(self) -> int:
        return sum(self._pool.freed_by(slab) for slab in self.slabs)

    @property
    def evicted(self) -> None:
        return None

    @property
    def widest(self) -> int:
        return self.rule.widest

    @property
    def forkable_from(self) -> int:
        return self.rule.forkable_from(self.written)

    def truncate(self, length: int) -> None:
        self.check_alive()
        if not self.last_start <= length <= self.length:
            raise ValueError(f"{length} is outside {self.last_start} to {self.length}")
        self.length = length

    def fork_bytes(self, length: int) -> int:
        return sum(share is not False for share in self._shares(length)) * SLAB_BYTES

    def _shares(self, length: int) -> list[bool | None]:
        shares = self.rule.shares(length, self.last_start, self.written)
        return shares[: -(-length // SEGMENT)] if self.spec.grows else shares

    def fork(self, length: int) -> HashCache:
        self.check_alive()
        if not self.forkable_from <= length <= self.length:
            raise ValueError(f"{length} is outside {self.forkable_from} to {self.length}")
        self._pool.check_room(self.fork_bytes(length))
        slabs = [
            _taken(self._pool) if share is None else self._pool.share(slab, will_write=share)
            for share, slab in zip(self._shares(length), self.slabs, strict=False)
        ]
        forked = HashCache(self.spec, self.rule, self._pool, slabs)
        forked.length = forked.last_start = length
        forked.written = self.written
        return forked

    def fill(self, count: int, seed: int) -> None:
        if self.length:
            raise ValueError(f"the cache holds {self.length} positions already")
        if count > self.rule.limit:
            raise ContextExceeded("the cache is full")
        self.grow(count)
        for slab in self.slabs:
            slab.payload[:] = np.random.default_rng(seed).integers(1, 1 << 62, (2, SEGMENT))
        self.length = self.last_start = self.written = count

    def release(self) -> None:
        self.released = True
        while self.slabs:
            slab = self.slabs.pop()
            if slab.holders == 1:
                slab.payload[:] = POISON
            self._pool.give_back(slab)

    @property
    def reach(self) -> int:
        return min(self.rule.limit, len(self.slabs) * SEGMENT)

    def keys_values(self, first: int, end: int) -> None:
        """It has none."""
        return

    def take_keys_values(self, count: int, numbers: KeysValues) -> Never:
        """Raises `KvStrategyUnsupported`."""
        raise KvStrategyUnsupported("this cache takes no keys and values")

    def growth_bytes(self, count: int) -> int:
        end = min(self.length + count, self.rule.limit)
        return max(0, -(-end // SEGMENT) - len(self.slabs)) * SLAB_BYTES if self.spec.grows else 0

    def grow(self, count: int) -> None:
        needed = self.growth_bytes(count)
        self._pool.check_room(needed)
        self.slabs += [_taken(self._pool) for _ in range(needed // SLAB_BYTES)]

    def check_alive(self) -> None:
        if self.released:
            raise AssertionError("a released cache was used")

    def check_room(self, count: int, context_length: int) -> None:
        if not 1 <= count <= self.widest:
            raise BadParameters(f"a feed takes 1 to {self.widest} tokens, not {count}")
        if self.length + count > min(self.rule.limit, context_length):
            raise ContextExceeded("the cache is full")

    def run(self, token_ids: Sequence[int], *, want_logits: bool) -> Output:
        """One forward's rows. Every key is read from the slabs, none from this call."""
        start, end = self.length, self.length + len(token_ids)
        slots = self.rule.slot(np.arange(start, end))
        for index in {int(slot) // SEGMENT for slot in slots}:
            self.slabs[index] = self._pool.writable(self.slabs[index], _new_payload, _copy)
        places = [(self.slabs[slot // SEGMENT].payload, slot % SEGMENT) for slot in slots.tolist()]
        for (payload, at), position, token in zip(
            places, range(start, end), token_ids, strict=True
        ):
            payload[0, at] = _first_key(token, position)
        first = np.concatenate([slab.payload[0] for slab in self.slabs])
        second = np.concatenate([slab.payload[1] for slab in self.slabs])
        rows = []
        for row, (payload, at) in enumerate(places):
            seen = self.rule.seen(start + row, self.spec)
            payload[1, at] = second[slots[row]] = _second_key(first[seen], start + row)
            if want_logits:
                rows.append(_logits(second[seen], token_ids[row]))
        self.last_start, self.length = start, end
        self.written = max(self.written, end)
        # Two layers, and what stands for the norm behind them.
        own = np.stack([first[slots], second[slots], _mix(second[slots])], axis=1) >> np.uint64(40)
        return Output(np.stack(rows) if want_logits else None, own.astype(np.float32)[..., None])


def _new_payload() -> Keys:
    return np.zeros((2, SEGMENT), np.uint64)


def _copy(target: Keys, source: Keys) -> None:
    target[:] = source


def _clean(payload: Keys) -> None:
    payload[:] = 0


def _taken(pool: SlabPool[Keys]) -> Slab[Keys]:
    return pool.take("hash", SLAB_BYTES, _new_payload)


class HashVerifier:
    """`batches` are the tokens of each feed of each forward, the latest 4,096."""

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
            kv_bytes_per_token=SLOT_BYTES,
            width=width,
            layer_count=2,
            hidden_size=1,
            backend="hash",
        )
        self.pool = SlabPool(_clean)
        self.row_counts: tuple[int, ...] = ROW_COUNTS
        self.thread_count = 1
        self.forward_count = 0
        self.batches: deque[tuple[int, ...]] = deque(maxlen=4096)

    def use_row_counts(self, row_counts: Sequence[int]) -> None:
        chosen = tuple(sorted(set(row_counts)))
        if not chosen or not set(chosen) <= set(ROW_COUNTS) or chosen[-1] < self.info.width:
            raise BadParameters(f"row counts {chosen} do not serve")
        self.row_counts = chosen

    def shallow(self) -> HashVerifier:
        return self

    def evicted_shape(self, spec: CacheSpec) -> Never:
        raise KvStrategyUnsupported("hashes are not kept once they are evicted")

    def allocate(self, spec: CacheSpec, evicted: object = None) -> HashCache:
        assert evicted is None
        self.pool.check_room(self.bytes_needed(spec))
        rule = self._rule(spec)
        slabs = [_taken(self.pool) for _ in range(rule.first_slabs)]
        return HashCache(spec, rule, self.pool, slabs)

    def bytes_needed(self, spec: CacheSpec) -> int:
        return self._rule(spec).first_slabs * SLAB_BYTES

    def _rule(self, spec: CacheSpec) -> SlotRule:
        if spec.kind is CacheKind.CONTIGUOUS and not 1 <= spec.capacity <= self.info.context_length:
            raise BadParameters(f"capacity {spec.capacity}")
        return SlotRule(spec, self.info.context_length, self.info.width)

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        return self.forward_batch([Feed(cache, token_ids, want_logits)])[0].logits

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        total = sum(len(feed.token_ids) for feed in feeds)
        if not 1 <= total <= self.row_counts[-1]:
            raise BadParameters(f"{total} tokens in a forward")
        if len({id(feed.cache) for feed in feeds}) < len(feeds):
            raise BadParameters("one cache is fed twice")
        for feed in feeds:
            cache = _own(feed.cache)
            cache.check_alive()
            cache.check_room(len(feed.token_ids), self.info.context_length)
            for token in feed.token_ids:
                if not 0 <= token < VOCABULARY:
                    raise TokenOutOfVocabulary(f"{token}", token_id=str(token))
        for feed in feeds:
            _own(feed.cache).grow(len(feed.token_ids))
        self.forward_count += 1
        self.batches.append(tuple(len(feed.token_ids) for feed in feeds))
        return [_tapped(feed) for feed in feeds]


def of_session(session: Session) -> HashVerifier:
    """The verifier of a session that has one of these."""
    assert isinstance(session.verifier, HashVerifier)
    return session.verifier


def _own(cache: KvCache) -> HashCache:
    # Also what stands for one and passes on what it is asked for: no class tells that.
    assert hasattr(cache, "run"), "another verifier's cache was fed"
    return cast(HashCache, cache)


def _tapped(feed: Feed) -> Output:
    output = _own(feed.cache).run(feed.token_ids, want_logits=feed.want_logits)
    features = None
    if feed.taps:
        assert output.features is not None
        features = output.features[:, list(feed.taps)]
    return Output(output.logits, features)


def expected_stream(
    prompt: Sequence[int], spec: CacheSpec, count: int, sampling: SamplingParameters
) -> list[int]:
    """What any session must generate: from the rule alone, with no cache at all."""
    tokens = list(prompt)
    first: list[int] = []
    second: list[int] = []
    while True:
        for position in range(len(first), len(tokens)):
            first.append(_first_key(tokens[position], position))
            keys = np.array(first, np.uint64)[_visible(position, spec)]
            second.append(_second_key(keys, position))
        if len(tokens) == len(prompt) + count:
            return tokens[len(prompt) :]
        last = len(tokens) - 1
        row = _logits(np.array(second, np.uint64)[_visible(last, spec)], tokens[last])
        seen = np.isin(np.arange(VOCABULARY), tokens)
        tokens.append(choose_token(row, sampling, len(tokens), seen))

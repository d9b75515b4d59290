"""What keys of applications may have of this node: sessions, generations, tokens a minute."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kakeya_fleet.fleet.errors import KeyLimitReached, KeyTokensSpent
from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.fleet.trust.token_rate import TokenBucket
from kakeya_fleet.node.admission.caller import Caller, caller_of_key
from kakeya_fleet.node.rpc.calling import Calling


class KeySpending:
    """Counts what each key has here; callers without a key have no limits of their own.

    Belongs to the event loop's thread, but for `most_sessions`, which any thread may ask.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._generating: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._most_sessions: dict[Caller, int] = {}

    def begin(self, calling: Calling) -> None:
        """Something begins that costs tokens. Raises `KeyTokensSpent`."""
        key, bucket = calling.key, self._bucket(calling)
        if key is None:
            return
        self._note(key)
        if bucket is not None and bucket.left(self._clock()) < 1.0:
            raise self._spent(key, bucket)

    def spend(self, calling: Calling, token_count: int) -> None:
        """So many tokens are appended, or were generated."""
        bucket = self._bucket(calling)
        if bucket is not None:
            bucket.spend(token_count, self._clock())

    def go_on(self, calling: Calling) -> None:
        """Work that runs goes on. Raises `KeyTokensSpent` once it owes a minute's tokens."""
        key, bucket = calling.key, self._bucket(calling)
        if key is not None and bucket is not None and bucket.owes_too_much(self._clock()):
            raise self._spent(key, bucket)

    @contextmanager
    def generating(self, calling: Calling) -> Iterator[None]:
        """A generation runs, or waits for its turn. Raises `KeyLimitReached`."""
        key = calling.key
        if key is None or not key.generation_limit:
            yield
            return
        if self._generating[key.key_id] >= key.generation_limit:
            raise KeyLimitReached(
                f"the key {key.name} runs {key.generation_limit} generations on this node, as many "
                "as it may",
                limit="generations",
                most=str(key.generation_limit),
            )
        self._generating[key.key_id] += 1
        try:
            yield
        finally:
            self._generating[key.key_id] -= 1
            # Keys that generate nothing now are forgotten.
            self._generating += Counter()

    def most_sessions(self, owner: str) -> int:
        """Sessions that an owner may have; 0 for no limit of its own."""
        with self._lock:
            return self._most_sessions.get(Caller(owner), 0)

    def _note(self, key: ApplicationKey) -> None:
        with self._lock:
            self._most_sessions[caller_of_key(key.key_id)] = key.session_limit

    def _bucket(self, calling: Calling) -> TokenBucket | None:
        key = calling.key
        if key is None or not key.tokens_per_minute:
            return None
        if key.key_id not in self._buckets:
            self._buckets[key.key_id] = TokenBucket(key.tokens_per_minute, self._clock())
        return self._buckets[key.key_id]

    def _spent(self, key: ApplicationKey, bucket: TokenBucket) -> KeyTokensSpent:
        seconds = bucket.seconds_until_some(self._clock())
        return KeyTokensSpent(
            f"the key {key.name} has spent its {key.tokens_per_minute} tokens a minute here",
            limit="tokens_per_minute",
            most=str(key.tokens_per_minute),
            retry_after_seconds=str(math.ceil(seconds * 10) / 10),
        )

"""A session's cache, which is given back to the pool only when no forward uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.sessions.ended import ended_error
from kakeya_fleet.engine.sessions.session_features import SessionFeatures


@dataclass(frozen=True, slots=True)
class ForwardInFlight:
    """A forward under way: `token_ids` behind what the borrowed `cache` holds.

    `history_length` is that when it was asked for; `features` is where the hidden
    states of its tapped layers go.
    """

    cache: KvCache
    token_ids: list[int]
    history_length: int
    features: SessionFeatures | None


class SessionCache:
    """Lends a cache to one use at a time until it is ended.

    A slab that was given back is another session's at once. So a cache that is
    ended by another thread while a forward writes to it is given back by the
    thread of the forward, when that is done. Any thread may call.
    """

    def __init__(self, cache: KvCache) -> None:
        self._lock = threading.Lock()
        self._cache: KvCache | None = cache
        self._is_lent = False
        self._is_resting = False
        self._end_reason = ""

    @property
    def is_resting(self) -> bool:
        """Whether its memory was given back, and `replace` is to make another."""
        return self._is_resting and not self._end_reason

    @property
    def end_reason(self) -> str:
        """Why it was ended; empty while it lives."""
        return self._end_reason

    @property
    def memory_bytes(self) -> int:
        """Bytes of its tensors, shared ones too; 0 once ended."""
        with self._lock:
            cache = self._living()
            return cache.memory_bytes if cache is not None else 0

    @property
    def resident(self) -> int:
        """Positions whose K/V are resident; 0 once ended."""
        with self._lock:
            cache = self._living()
            return cache.resident if cache is not None else 0

    @property
    def slabs(self) -> tuple[Slab[Any], ...]:
        """What it holds of the pool; nothing once ended."""
        with self._lock:
            cache = self._living()
            return tuple(cache.slabs) if cache is not None else ()

    @property
    def evicted(self) -> EvictedStore | None:
        """What keeps the evicted positions of a `restored` cache; None once ended."""
        with self._lock:
            cache = self._living()
            return cache.evicted if cache is not None else None

    def check_alive(self) -> None:
        """Raises `SessionNotFound` once ended, `GroupLost` when that was its verifier's group."""
        if self._end_reason:
            raise ended_error("the session", self._end_reason)

    def borrow(self) -> KvCache:
        """The cache, kept until `hand_back`.

        Raises `SessionNotFound` once ended, `RestorerLost` when it could not be replaced.
        """
        with self._lock:
            self._check_idle()
            if self._cache is None:
                raise RestorerLost("the session's cache is gone with what it evicted; renew it")
            self._is_lent = True
            return self._cache

    def replace(self, make: Callable[[], KvCache]) -> None:
        """Gives the memory back, and takes the cache that `make` returns.

        The memory is given back first, so that no more is needed than it had;
        when `make` raises there is none. Raises `SessionNotFound` once ended.
        """
        with self._lock:
            self._check_idle()
            self._release()
            self._cache = make()
            self._is_resting = False

    def rest(self) -> bool:
        """Gives the memory back until `replace`; False while it is lent, and where it is gone."""
        with self._lock:
            if self._end_reason or self._is_lent or self._cache is None:
                return False
            self._release()
            self._is_resting = True
            return True

    def hand_back(self) -> None:
        """Ends what `borrow` began."""
        with self._lock:
            self._is_lent = False
            if self._end_reason:
                self._release()

    def end(self, reason: str) -> None:
        """Gives the memory back, after the use that is under way. The first reason stays."""
        with self._lock:
            if self._end_reason:
                return
            self._end_reason = reason
            if not self._is_lent:
                self._release()

    def _check_idle(self) -> None:
        self.check_alive()
        if self._is_lent:
            raise ValueError("a forward of this session is under way")

    def _living(self) -> KvCache | None:
        return None if self._end_reason else self._cache

    def _release(self) -> None:
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.release()

"""Sessions that others end while they compute: memory is given back once, and read by nobody."""

from __future__ import annotations

import queue
import random
import threading
from typing import Any

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.errors import (
    SessionNotFound,
)
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing
from tests.support.hash_sessions import (
    PROMPT,
    WINDOWED,
    alone,
    new_session,
    prefilled,
)


def test_a_session_that_is_ended_within_a_forward_keeps_its_memory_until_then() -> None:
    """A slab given back is the next session's: a forward that still writes would corrupt it."""
    session = new_session()
    pool, verifier = session.verifier.pool, session.verifier
    session.append(PROMPT)
    prefilled(session)
    feed = session.verify_feed([1, 2, 3], 9)
    ending = threading.Thread(target=session.end, args=("closed",))
    ending.start()
    ending.join()
    assert session.memory_bytes == 0
    assert session.end_reason == "closed"
    assert pool.used_bytes == verifier.bytes_needed(WINDOWED)
    other = Session(verifier, verifier.allocate(WINDOWED))
    other.append(PROMPT[:50])
    prefilled(other)
    (output,) = verifier.forward_batch([feed])
    with pytest.raises(SessionNotFound, match="closed"):
        session.verified(output, GREEDY)
    assert session.history[:] == PROMPT
    assert pool.used_bytes == verifier.bytes_needed(WINDOWED)
    assert alone(other, 6) == hashing.expected_stream(PROMPT[:50], WINDOWED, 6, GREEDY)
    other.end("closed")
    session.end("closed again")
    assert pool.used_bytes == 0
    assert session.end_reason == "closed"


def test_an_ended_session_whose_forward_fails_gives_its_memory_back() -> None:
    session = new_session()
    session.append(PROMPT)
    session.prefill_feed()
    session.end("closed")
    session.not_run()
    assert session.verifier.pool.used_bytes == 0


def test_ended_at_any_moment_by_another_thread_no_slab_is_used_by_two() -> None:
    """Sessions end at random moments while forwards run and their slabs find new owners."""
    verifier = hashing.HashVerifier()
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=120)
    expected = hashing.expected_stream(PROMPT[:100], spec, 8, GREEDY)
    victims: queue.SimpleQueue[Session | None] = queue.SimpleQueue()

    def end_them() -> None:
        rng = random.Random(5)
        while (victim := victims.get()) is not None:
            for _ in range(rng.randrange(3000)):
                pass
            victim.end("closed")

    ending = threading.Thread(target=end_them)
    ending.start()
    ended_within = 0
    for _ in range(40):
        victim, witness = (Session(verifier, verifier.allocate(spec)) for _ in range(2))
        for session in (victim, witness):
            session.append(PROMPT[:100])
        victims.put(victim)
        try:
            while len(victim.history) < 115:
                if not PrefillTurn(victim)():
                    VerifyTurn(victim, Block([], GREEDY, 1))()
        except SessionNotFound:
            ended_within += 1
        assert alone(witness, 8) == expected
        witness.end("closed")
    victims.put(None)
    ending.join()
    assert ended_within > 0
    assert verifier.pool.used_bytes == 0


@pytest.mark.parametrize("what", ["memory_bytes", "resident", "slabs"])
def test_what_a_session_holds_may_be_asked_while_another_thread_ends_it(what: str) -> None:
    asking, asked = threading.Event(), []

    class Slow:
        """Is ended by another thread while it is being asked."""

        def __init__(self, cache: KvCache) -> None:
            self._cache = cache

        def __getattr__(self, name: str) -> Any:
            if name == what and asking.is_set():
                ending.start()
            return getattr(self._cache, name)

    verifier = hashing.HashVerifier()
    session = Session(verifier, Slow(verifier.allocate(WINDOWED)))
    ending = threading.Thread(target=session.end, args=("closed",))
    session.append([1, 2])
    prefilled(session)
    asking.set()
    asked.append(getattr(session, what))
    ending.join()
    asked.append(getattr(session, what))
    assert asked[0]
    assert not asked[1]

"""Seconds that pass only in forwards, so that no busy machine changes what is measured."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.sessions.session import Session
from tests.support import hash_verifier as hashing
from tests.support.replacing import replace_method

FORWARD_SECONDS = 0.01


class ModelClock:
    """A clock that a model's forwards move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def timed_session(clock: ModelClock, spec: CacheSpec, prompt: Sequence[int]) -> Session:
    """A session over a hash verifier whose forwards take 10 ms of the clock."""
    verifier = hashing.HashVerifier()
    session = Session(verifier, verifier.allocate(spec))
    session.append(prompt)
    honest = verifier.forward_batch

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        clock.now += FORWARD_SECONDS
        return honest(feeds)

    replace_method(verifier, "forward_batch", forward_batch)
    return session

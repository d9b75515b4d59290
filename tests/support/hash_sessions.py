"""Sessions of a verifier without weights, and what they say alone."""

from __future__ import annotations

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing

WINDOWED = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
SEEDED = SamplingParameters(temperature=0.4, seed=3)
PROMPT = [(index * index + 3 * (index % 7)) % 48 for index in range(170)]


def new_session(spec: CacheSpec = WINDOWED, **options: int) -> Session:
    verifier = hashing.HashVerifier(**options)
    return Session(verifier, verifier.allocate(spec))


def prefilled(session: Session) -> Session:
    while PrefillTurn(session)():
        pass
    return session


def alone(session: Session, count: int, sampling: SamplingParameters = GREEDY) -> list[int]:
    prefilled(session)
    return [VerifyTurn(session, Block([], sampling, 1))().step.committed[0] for _ in range(count)]

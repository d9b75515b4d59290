"""Context vectors of a session: those of committed positions, however they came about."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.features import FeatureSpec
from kakeya_fleet.engine.contracts.verifier import Feed
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_features import MOST_WAITING, SessionFeatures
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from tests.support import hash_verifier as hashing

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = [index * 7 % 48 for index in range(45)]


class Doubling:
    """Vectors are the hidden states, doubled; counts the calls."""

    def __init__(self, taps=(0, 1), digest: str = "d") -> None:
        self.spec = FeatureSpec(taps, 1, len(taps), digest)
        self.row_counts = []

    def encode(self, features):
        self.row_counts.append(len(features))
        return features.reshape(len(features), len(self.spec.taps)) * np.float32(2)


@pytest.fixture
def verifier() -> hashing.HashVerifier:
    return hashing.HashVerifier()


def open_session(verifier, encoder=None) -> Session:
    session = Session(verifier, verifier.allocate(SPEC))
    session.use_encoder(encoder)
    return session


def prefill(session) -> None:
    while PrefillTurn(session)():
        pass


def expected(verifier, history, taps=(0, 1)):
    """Vectors of every position but the last, from one token a forward."""
    cache = verifier.allocate(SPEC)
    rows = []
    for token in history[:-1]:
        (output,) = verifier.forward_batch([Feed(cache, [token], False, taps)])
        rows.append(output.features[0] * np.float32(2))
    return np.stack(rows).reshape(len(rows), len(taps))


def decode(session, wanted, wrong=()):
    """Generates `wanted` tokens with drafts that err at some positions; the tokens."""
    text = []
    while len(text) < wanted:
        step = VerifyTurn(session, Block(wrong, GREEDY, wanted - len(text)))().step
        text += step.committed
    return text


@pytest.mark.parametrize("drafts", [(), (1, 2, 3, 4, 5)])
def test_the_vectors_are_those_of_the_committed_history(
    verifier: hashing.HashVerifier, drafts: tuple[int, ...]
) -> None:
    session = open_session(verifier, Doubling())
    session.append(PROMPT)
    prefill(session)
    assert session.features.end == len(PROMPT) - 1
    decode(session, 20, drafts)
    # Rejected drafts were forwarded too, at the positions of what was committed.
    assert session.features.end == len(session.history) - 1
    first, vectors = session.features.since(0)
    assert first == 0
    assert np.array_equal(vectors, expected(verifier, session.history))


def test_right_drafts_give_the_same_vectors(verifier: hashing.HashVerifier) -> None:
    alone = open_session(verifier, Doubling())
    alone.append(PROMPT)
    prefill(alone)
    text = decode(alone, 24)
    drafted = open_session(verifier, Doubling())
    drafted.append(PROMPT[:20])
    prefill(drafted)
    drafted.append(PROMPT[20:])
    prefill(drafted)
    while (done := len(drafted.history) - len(PROMPT)) < 24:
        VerifyTurn(drafted, Block(text[done : done + 4], GREEDY, 24 - done))()
    assert drafted.history[:] == alone.history[:]
    assert np.array_equal(drafted.features.since(0)[1], alone.features.since(0)[1])


def test_without_an_encoder_nothing_is_tapped(verifier: hashing.HashVerifier) -> None:
    session = open_session(verifier)
    session.append(PROMPT)
    assert session.prefill_feed().taps == ()
    session.not_run()
    assert session.features is None


def test_an_encoder_may_come_and_go_between_and_within_forwards(
    verifier: hashing.HashVerifier,
) -> None:
    session = open_session(verifier)
    session.append(PROMPT)
    PrefillTurn(session)()
    known = len(PROMPT) - 1 - session.pending
    session.use_encoder(Doubling())
    prefill(session)
    first, vectors = session.features.since(0)
    assert first == known
    assert np.array_equal(vectors, expected(verifier, PROMPT)[known:])
    features = session.features
    session.use_encoder(Doubling())
    assert session.features is features, "the same encoder begins anew"

    feed = session.verify_feed((), 1)
    session.use_encoder(Doubling((1,), "other"))
    session.verified(verifier.forward_batch([feed])[0], GREEDY)
    assert session.features.end == 0, "hidden states of other taps were taken"
    assert features.end == len(PROMPT)
    session.use_encoder(None)
    decode(session, 3)
    assert session.features is None


@pytest.mark.parametrize("length", [0, 1, 17, 45, 52, None])
def test_a_fork_has_the_vectors_of_its_prefix(
    verifier: hashing.HashVerifier, length: int | None
) -> None:
    session = open_session(verifier, Doubling())
    session.append(PROMPT)
    prefill(session)
    decode(session, 10)
    fork = session.fork(length)
    prefill(fork)
    count = len(fork.history)
    assert fork.features.end == max(0, count - 1)
    if count > 1:
        assert np.array_equal(fork.features.since(0)[1], expected(verifier, fork.history))
    before = session.features.end
    fork.append([3, 1, 4])
    prefill(fork)
    assert session.features.end == before


def test_what_nobody_reads_waits_and_is_made_together() -> None:
    encoder = Doubling((0,))
    features = SessionFeatures(encoder)
    for position in range(3 * MOST_WAITING):
        features.add(position, np.full((1, 1, 1), position, np.float32))
    # The first alone, since a reader may be there; then a batch at a time.
    assert encoder.row_counts == [1, MOST_WAITING, MOST_WAITING]
    assert features.end == 3 * MOST_WAITING
    assert features.since(0)[1][:, 0].tolist() == [2.0 * row for row in range(3 * MOST_WAITING)]
    encoder.row_counts.clear()
    for position in range(3 * MOST_WAITING, 3 * MOST_WAITING + 5):
        features.add(position, np.full((1, 1, 1), position, np.float32))
        assert encoder.row_counts[-1] == 1, "a reader was kept waiting for the encoder"
        features.since(position)


def test_positions_that_are_known_stay_and_a_gap_begins_anew() -> None:
    features = SessionFeatures(Doubling((0,)))
    features.add(0, np.arange(6, dtype=np.float32).reshape(6, 1, 1))
    features.add(2, np.full((6, 1, 1), 9, np.float32))
    assert features.since(0)[1][:, 0].tolist() == [0, 2, 4, 6, 8, 10, 18, 18]
    features.add(20, np.full((2, 1, 1), 1, np.float32))
    assert (features.since(0)[0], features.end) == (20, 22)


def test_a_reader_in_another_thread_sees_whole_vectors_in_order() -> None:
    features = SessionFeatures(Doubling((0,)), positions=16)
    faults = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            first, vectors = features.since(0)
            if vectors[:, 0].tolist() != [2.0 * (first + row) for row in range(len(vectors))]:
                faults.append((first, vectors))

    reader = threading.Thread(target=read)
    reader.start()
    for position in range(0, 3000, 3):
        rows = np.arange(position, position + 3, dtype=np.float32)
        features.add(position, rows.reshape(3, 1, 1))
    done.set()
    reader.join()
    assert not faults

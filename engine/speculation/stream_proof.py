"""A short proof on a loaded verifier that neither drafts nor cuts change its stream.

`engine.verifiers.exactness` finds whether forwards give the same bits; this runs what people
run: sessions that read a history past their window and choose tokens behind it. One is the
verifier alone, one has a drafter that lies, and to one the history comes in pieces.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn

SINK, WINDOW = 4, 64
HISTORY, GENERATED = 160, 48
"""Tokens: the history is past sink and window, the stream goes on past both once more."""
TEMPERATURE = 0.8
"""Choices among many: a random history's likeliest tokens soon repeat themselves."""


@dataclass(frozen=True, slots=True)
class StreamProof:
    """What was run, and what came of it.

    `drafted` tokens were drafted, of which `accepted` were the verifier's own: without some of
    either kind nothing is proven of drafts.
    """

    sink: int
    window: int
    history: int
    generated: int
    drafted: int
    accepted: int
    same_with_lies: bool
    same_in_pieces: bool

    @property
    def is_past_window(self) -> bool:
        """Whether queries had lost positions: a model of few positions has no room for it."""
        return self.history > self.sink + self.window

    @property
    def holds(self) -> bool:
        """Whether every stream was that of the verifier alone."""
        return self.same_with_lies and self.same_in_pieces


def prove_streams(verifier: Verifier, *, seed: int = 0) -> StreamProof:
    """Runs all three streams; `seed` chooses the history, the choices, the lies and the cuts.

    Raises what sessions of `verifier` raise, `OutOfKvMemory` among it.
    """
    # A model of few positions is run with less of everything.
    most = verifier.info.context_length
    generated = min(GENERATED, most // 4)
    history = min(HISTORY, most - generated)
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=min(WINDOW, max(1, most // 4)))
    rng = random.Random(seed)
    prompt = [rng.randrange(verifier.info.vocabulary_size) for _ in range(history)]
    sampling = SamplingParameters(temperature=TEMPERATURE, seed=seed)
    alone = _alone(verifier, spec, prompt, sampling, generated)
    lied, drafted, accepted = _with_lies(verifier, spec, prompt, sampling, alone, rng)
    return StreamProof(
        sink=spec.sink,
        window=spec.window,
        history=history,
        generated=generated,
        drafted=drafted,
        accepted=accepted,
        same_with_lies=lied == alone,
        same_in_pieces=_in_pieces(verifier, spec, prompt, sampling, generated, rng) == alone,
    )


@contextmanager
def _session(verifier: Verifier, spec: CacheSpec) -> Iterator[Session]:
    session = Session.allocate(verifier, spec)
    try:
        yield session
    finally:
        session.end("checked")


def _read(session: Session, prompt: Sequence[int]) -> None:
    session.append(prompt)
    while PrefillTurn(session)():
        pass


def _chosen(session: Session, sampling: SamplingParameters, count: int) -> list[int]:
    """`count` tokens, a forward each."""
    return [VerifyTurn(session, Block([], sampling, 1))().step.committed[0] for _ in range(count)]


def _alone(
    verifier: Verifier,
    spec: CacheSpec,
    prompt: Sequence[int],
    sampling: SamplingParameters,
    count: int,
) -> list[int]:
    with _session(verifier, spec) as session:
        _read(session, prompt)
        return _chosen(session, sampling, count)


def _in_pieces(
    verifier: Verifier,
    spec: CacheSpec,
    prompt: Sequence[int],
    sampling: SamplingParameters,
    count: int,
    rng: random.Random,
) -> list[int]:
    """The stream behind a history that came in random pieces, each computed before the next."""
    with _session(verifier, spec) as session:
        while (begin := len(session.history)) < len(prompt):
            _read(session, prompt[begin : begin + rng.randint(1, 2 * verifier.info.width)])
        return _chosen(session, sampling, count)


def _with_lies(
    verifier: Verifier,
    spec: CacheSpec,
    prompt: Sequence[int],
    sampling: SamplingParameters,
    alone: Sequence[int],
    rng: random.Random,
) -> tuple[list[int], int, int]:
    """The stream with a drafter that knows it, says some of it, and lies from there on.

    With it how many tokens were drafted, and how many of them accepted.
    """
    vocabulary = verifier.info.vocabulary_size
    tokens: list[int] = []
    drafted = accepted = 0
    with _session(verifier, spec) as session:
        widest = session.width - 1
        _read(session, prompt)
        while len(tokens) < len(alone):
            told = alone[len(tokens) :][:widest]
            truths = rng.randint(0, len(told))
            lies = [(token + rng.randrange(1, vocabulary)) % vocabulary for token in told[truths:]]
            draft = [*told[:truths], *lies]
            block = Block(draft, sampling, len(alone) - len(tokens))
            committed = VerifyTurn(session, block)().step.committed
            tokens += committed
            drafted += len(draft)
            accepted += len(committed) - 1
    return tokens, drafted, accepted

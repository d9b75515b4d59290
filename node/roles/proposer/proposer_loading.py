"""Loads proposers, a model into a thread of its own, and measures what their drafts cost here."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice, repeat

import numpy as np

from kakeya_fleet.engine.contracts.blocking import Result
from kakeya_fleet.engine.contracts.draft import ConditionedDraftState, DraftState, Proposer
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.contracts.proposer_info import AUTOREGRESSIVE, NGRAM, ProposerInfo
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind, ModelUnusable
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.proposers.local_source import run_inline
from kakeya_fleet.engine.proposers.names import WITHOUT_FILES
from kakeya_fleet.engine.proposers.shared_forwards import Sharing
from kakeya_fleet.engine.sessions.turns import Turn
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role, StepCost
from kakeya_fleet.node.roles.proposer.served_proposer import (
    INLINE_VECTORS,
    ModelSteps,
    ServedProposer,
    run_in_thread,
)
from kakeya_fleet.node.roles.worker import ModelWorker, OnFault, WorkerClosed, ignore_faults
from kakeya_fleet.node.rpc.refusals import WorkerFault

# MLX gives each thread a stream, and to compute waits for it with the loop held up.
THREAD_BOUND = frozenset({"mlx"})
# A forward a token: between two of them the loop may hear that the draft is taken back. That a
# quote took no time says nothing of the next draft.
LONG_DRAFTS = frozenset({AUTOREGRESSIVE})

MEASURED_BLOCK_SIZES = (1, 4, 8, 15)
_REPEATS = 9
# No more repeats of a block size once they took so long: some models take seconds a draft.
_ENOUGH_SECONDS = 1.0
_HISTORY_TOKENS = 256
# For a lookup a history repeats itself, so that it finds something to draft; for a model it does
# not: what the text has already is drafted without asking it, at no cost.
_PERIOD = 64
_ANY_VOCABULARY = 1 << 15
# Tokens between two drafts of a pair that goes well: their vectors are part of the cost.
_COMMITTED = 4


async def load_served_proposer(
    model: str,
    load: Callable[[], Proposer],
    clock: Callable[[], float],
    on_fault: OnFault = ignore_faults,
) -> ServedProposer:
    """What `load` gives for the name `model`, loaded and measured.

    `clock` gives monotonic seconds; `on_fault` hears of faults of its thread. Raises what `load`
    does; no thread is left then.
    """
    if model in WITHOUT_FILES:
        lookup = load()
        return ServedProposer(lookup, proposer_offer(lookup, clock), run_inline, run_in_thread)
    worker = ModelWorker(f"proposer-{model}", on_fault)
    try:
        proposer: Proposer = await worker.run(load)
        offer = await worker.run(partial(proposer_offer, proposer, clock))
    except DraftFailed as failed:
        await worker.close()
        raise ModelUnusable(f"{model} cannot draft here: {failed}", model_id=model) from failed
    except BaseException:
        await worker.close()
        raise

    async def run(step: Callable[[], Result], /) -> Result:
        with _as_unreachable(offer.model_id):
            return await worker.run(step)

    async def run_turn(turn: Turn[Result], /) -> Result:
        with _as_unreachable(offer.model_id):
            return await worker.run_turn(turn)

    steps = ModelSteps(run)
    is_bound = proposer.info.backend in THREAD_BOUND or proposer.info.kind in LONG_DRAFTS
    return ServedProposer(
        proposer,
        offer,
        run if is_bound else steps.run,
        run if is_bound else steps.run_long,
        worker.close,
        inline_tokens=INLINE_VECTORS,
        sharing=Sharing(proposer.forwards, run_turn, worker.others_wait)
        if isinstance(proposer, AutoregressiveProposer)
        else None,
    )


@contextmanager
def _as_unreachable(model_id: str) -> Iterator[None]:
    """Its thread's end is a fault of the proposer: its verifiers go on without it."""
    try:
        yield
    except WorkerClosed as error:
        fault = f"{model_id} is served here no more"
        raise DraftFailed(DraftFaultKind.UNREACHABLE, fault) from error
    except WorkerFault as error:
        raise DraftFailed(DraftFaultKind.UNREACHABLE, str(error)) from error


def proposer_offer(proposer: Proposer, clock: Callable[[], float]) -> ModelOffer:
    """What the card says of a loaded proposer, its drafts measured now.

    `clock` gives monotonic seconds.
    """
    info = proposer.info
    spec = proposer.encoder.spec if proposer.encoder is not None else None
    return ModelOffer(
        model_id=info.model_id,
        role=Role.PROPOSER,
        kind=ModelKind(info.kind),
        weights_digest=info.weights_digest,
        tokenizer_digest=info.tokenizer_digest,
        dtype=info.dtype,
        vocabulary_size=info.vocabulary_size,
        context_length=info.context_length,
        step_costs=measure_drafts(proposer, clock),
        backend=info.backend,
        architecture=info.architecture,
        target_weights_digest=info.target_weights_digest,
        feature_width=spec.width if spec is not None else 0,
        encoder_digest=spec.digest if spec is not None else "",
        tapped_layers=spec.taps if spec is not None else (),
        block_size=info.block_size,
        given_history_tokens=info.given_history_tokens,
        ends_drafts=info.ends_drafts,
    )


def measure_drafts(proposer: Proposer, clock: Callable[[], float]) -> tuple[StepCost, ...]:
    """Median seconds of one commit and one draft, by drafted tokens, rising.

    A longer block is never said to cost less than a shorter one. A proposer that
    takes context vectors gets random ones: what it costs does not depend on them.
    """
    info = proposer.info
    most = info.block_size or MEASURED_BLOCK_SIZES[-1]
    sizes = sorted({min(size, most) for size in MEASURED_BLOCK_SIZES})
    # The commits below come on top of it.
    length = _HISTORY_TOKENS
    if info.context_length:
        length = max(1, min(length, info.context_length - _REPEATS * _COMMITTED - most))
    costs: list[StepCost] = []
    opened: Callable[[Sequence[int]], DraftState] = proposer.open
    if isinstance(proposer, AutoregressiveProposer):
        opened = proposer.open_whole
    for block_size in sizes:
        text = _text(info)
        state = opened(list(islice(text, length)))
        supplied = _vectors(state, proposer, 0)
        if supplied is not None and isinstance(state, ConditionedDraftState):
            state.take_features(0, supplied)
        while state.is_behind:
            state.read()
        state.propose((), block_size, 0)
        seconds: list[float] = []
        while len(seconds) < _REPEATS and sum(seconds) < _ENOUGH_SECONDS:
            committed = list(islice(text, _COMMITTED))
            vectors = _vectors(state, proposer, len(committed))
            began = clock()
            state.commit(committed)
            if vectors is not None and isinstance(state, ConditionedDraftState):
                state.take_features(state.features_end, vectors)
            state.propose((), block_size, 0)
            seconds.append(clock() - began)
        state.close()
        least = costs[-1].seconds if costs else 0.0
        costs.append(StepCost(block_size, max(statistics.median(seconds), least)))
    return tuple(costs)


def _text(info: ProposerInfo) -> Iterator[int]:
    """What is committed to a proposer that is measured, without an end."""
    if info.kind == NGRAM:
        return cycle(range(min(_PERIOD, info.vocabulary_size or _PERIOD)))
    random = np.random.default_rng(_HISTORY_TOKENS)
    size = info.vocabulary_size or _ANY_VOCABULARY
    return (int(random.integers(size)) for _ in repeat(None))


def _vectors(state: DraftState, proposer: Proposer, coming: int) -> ContextVectors | None:
    """Random context vectors that `propose` will want when `coming` more tokens are there.

    None for a proposer that takes none.
    """
    if proposer.encoder is None or not isinstance(state, ConditionedDraftState):
        return None
    count = max(0, state.length + coming - 1 - state.features_end)
    random = np.random.default_rng(state.features_end)
    return random.standard_normal((count, proposer.encoder.spec.width), np.float32)

"""Loads the proposers of a node: a model into a thread of its own, a lookup without one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kakeya_fleet.engine.backends import AUTO
from kakeya_fleet.engine.contracts.draft import Proposer
from kakeya_fleet.engine.models.model_folder import Progress
from kakeya_fleet.engine.proposers import ngram
from kakeya_fleet.engine.proposers.loading import load_proposer
from kakeya_fleet.engine.proposers.local_source import run_inline
from kakeya_fleet.node.roles.proposer.proposer_loading import proposer_offer
from kakeya_fleet.node.roles.proposer.served_proposer import (
    INLINE_VECTORS,
    ModelSteps,
    ServedProposer,
    run_in_thread,
)
from kakeya_fleet.node.roles.verifier.worker import ModelWorker

# MLX gives each thread a stream, and to compute waits for it with the loop held up.
THREAD_BOUND = frozenset({"mlx"})


async def load_served_proposer(
    model: str,
    clock: Callable[[], float],
    *,
    dtype: str = "float32",
    backend: str = AUTO,
    progress: Progress | None = None,
    reading: Progress | None = None,
) -> ServedProposer:
    """The proposer `MODEL` or `MODEL@TARGET`, loaded and measured.

    `clock` gives monotonic seconds. `backend` computes it, a name of `engine.backends`
    or `AUTO`. Raises a `ModelUnusable` or `BadParameters`; no thread is left then.
    """
    if model == ngram.MODEL_ID:
        lookup = load_proposer(model)
        return ServedProposer(lookup, proposer_offer(lookup, clock), run_inline, run_in_thread)
    worker = ModelWorker(f"proposer-{model}")
    try:
        proposer: Proposer = await worker.run(
            partial(
                load_proposer,
                model,
                backend=backend,
                dtype=dtype,
                progress=progress,
                reading=reading,
            )
        )
        offer = await worker.run(partial(proposer_offer, proposer, clock))
    except BaseException:
        await worker.close()
        raise
    if proposer.info.backend in THREAD_BOUND:
        return ServedProposer(
            proposer, offer, worker.run, worker.run, worker.close, inline_tokens=INLINE_VECTORS
        )
    steps = ModelSteps(worker.run)
    return ServedProposer(
        proposer, offer, steps.run, steps.run_long, worker.close, inline_tokens=INLINE_VECTORS
    )

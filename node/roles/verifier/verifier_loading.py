"""Loads a verifier into a thread of its own and measures its steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import structlog

from kakeya_fleet.engine.backends import (
    arithmetic_of,
    load_verifier,
    prepare,
    stores_beside,
    threads_of,
)
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.device import AUTO
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters, ModelUnusable
from kakeya_fleet.engine.models.model_folder import Progress
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.verifiers.calibration import measure_steps
from kakeya_fleet.engine.verifiers.kept_exactness import settle_once
from kakeya_fleet.engine.verifiers.thread_count import settle_threads
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role, StepCost
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.worker import ModelWorker, OnFault

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Admission:
    """Where a verifier's sessions are registered, and what they may take together.

    `clock` gives monotonic seconds; `on_fault` hears of faults of its thread.
    """

    registry: SessionRegistry[OpenSession]
    budget_bytes: int
    clock: Callable[[], float]
    on_fault: OnFault


async def load_served_verifier(
    model: str,
    admission: Admission,
    *,
    dtype: str,
    weights: str = "auto",
    backend: str,
    device: str = AUTO,
    progress: Progress | None = None,
    reading: Progress | None = None,
) -> ServedVerifier:
    """The model that `model` names, loaded, measured and checked.

    `progress` hears of a download, `reading` of the weights, both from other threads.
    Raises a `ModelUnusable` or `BadParameters`; no thread is left then.
    """
    meanwhile = partial(_prepare, backend, device)
    resolve = partial(resolve_model, model, dtype=dtype, progress=progress, meanwhile=meanwhile)
    folder = await asyncio.to_thread(resolve)
    if reading is not None:
        # To import the back end takes seconds, and is part of the load.
        reading(0, 0)
    worker = ModelWorker(f"verifier-{folder.model_id}", admission.on_fault)
    try:
        load = partial(
            load_verifier,
            folder,
            dtype=dtype,
            weights=weights,
            backend=backend,
            device=device,
            reading=reading,
        )
        verifier = await worker.run(load)
        await worker.run(partial(choose_threads, verifier, admission.clock))
        served = await serve_verifier(verifier, worker, admission)
        stores = await worker.run(partial(stores_beside, verifier))
        arithmetic = stores.arithmetic if stores is not None else ""
        offer = replace(served.offer, evicted_arithmetic=arithmetic)
        return replace(served, offer=offer, stores=stores, source=str(folder.path))
    except BaseException:
        await worker.close()
        raise


def _prepare(backend: str, device: str) -> None:
    """What the load will need besides the folder; where that fails, it is the load's to say."""
    with suppress(ModelUnusable, BadParameters):
        prepare(backend, device)


def choose_threads(verifier: Verifier, clock: Callable[[], float]) -> None:
    """The threads of forwards, before anything is checked or measured with one number of them.

    `clock` gives monotonic seconds.
    """
    threads = threads_of(verifier)
    if threads is None or "OMP_NUM_THREADS" in os.environ:
        # What a person set stays.
        return
    most = threads.count
    chosen = settle_threads(verifier, threads, clock)
    if chosen < most:
        _log.info(
            "fewer_threads",
            model=verifier.info.model_id,
            threads=chosen,
            cores=most,
            reason="as fast, and the other cores stay free",
        )


async def serve_verifier(
    verifier: Verifier, worker: ModelWorker, admission: Admission
) -> ServedVerifier:
    """A verifier that was loaded, measured and checked in the thread of `worker`."""
    offer = await worker.run(partial(verifier_offer, verifier, admission.clock))
    budget = admission.registry.add_verifier(verifier, admission.budget_bytes)
    return ServedVerifier(verifier, offer, worker, budget)


def verifier_offer(verifier: Verifier, clock: Callable[[], float]) -> ModelOffer:
    """What the card says of a loaded verifier, its exactness settled and its steps measured now.

    Both with the threads that the calling thread's forwards take: they must not
    change any more. `clock` gives monotonic seconds.
    """
    info = verifier.info
    # First of all: it chooses the shapes of the forwards that are measured.
    arithmetic = arithmetic_of(verifier)
    exactness = settle_once(verifier, arithmetic)
    return ModelOffer(
        model_id=info.model_id,
        role=Role.VERIFIER,
        kind=ModelKind.AUTOREGRESSIVE,
        weights_digest=info.weights_digest,
        tokenizer_digest=info.tokenizer_digest,
        quantization=info.quantization,
        dtype=info.dtype,
        vocabulary_size=info.vocabulary_size,
        context_length=info.context_length,
        kv_bytes_per_token=info.kv_bytes_per_token,
        step_costs=tuple(
            StepCost(count, seconds) for count, seconds in measure_steps(verifier, clock)
        ),
        exact=exactness.exact,
        kv_fixed_bytes=info.kv_fixed_bytes,
        backend=info.backend,
        history_layer_count=info.history_layer_count,
        thread_count=exactness.thread_count,
        arithmetic=arithmetic,
    )

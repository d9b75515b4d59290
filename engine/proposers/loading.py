"""Proposers by the name that requests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from kakeya_fleet.engine.backends import (
    AUTO,
    for_drafts,
    import_backend,
    import_dflash,
    import_masked_diffusion,
    load_dflash,
    load_masked_diffusion,
    load_verifier,
)
from kakeya_fleet.engine.backends.families import FAMILIES
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.device import AUTO as ANY_DEVICE
from kakeya_fleet.engine.contracts.device import CPU
from kakeya_fleet.engine.contracts.draft import Proposer
from kakeya_fleet.engine.contracts.proposer_info import (
    AUTOREGRESSIVE,
    DFLASH,
    MASKED_DIFFUSION,
)
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import DeviceUnavailable, ModelNotFound, ModelUnusable
from kakeya_fleet.engine.memory.allocation import told_as_unloadable
from kakeya_fleet.engine.models import weight_choice
from kakeya_fleet.engine.models.end_tokens import end_token_ids
from kakeya_fleet.engine.models.json_object import read_json_object
from kakeya_fleet.engine.models.model_folder import ModelFolder, Progress, folder_here
from kakeya_fleet.engine.proposers import ngram
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.proposers.manifest import check_trained_for, read_trained_target
from kakeya_fleet.engine.proposers.names import TARGET_MARK, split_target
from kakeya_fleet.engine.proposers.quoting import QuotingProposer

LOADERS: Mapping[str, Callable[[], Proposer]] = MappingProxyType(
    {ngram.MODEL_ID: ngram.NgramProposer}
)
"""Proposers without a folder."""

DFLASH_ENTRIES = ("dflash_config", "target_layer_ids", "num_target_layers")


def load_proposer(
    name: str,
    *,
    backend: str = AUTO,
    device: str = ANY_DEVICE,
    dtype: str = "auto",
    weights: str = weight_choice.AUTO,
    kv_budget_bytes: int | None = None,
    progress: Progress | None = None,
    reading: Progress | None = None,
) -> Proposer:
    """The proposer `name`: `ngram`, or `MODEL` or `MODEL@TARGET`.

    `MODEL` is what verifiers are named by, and what it is its config says: a DFlash drafter,
    a masked-diffusion model, or a plain language model. `TARGET` names in the same
    way the verifier whose embedding and head a DFlash drafter uses; without it
    the drafter's manifest does. `backend` computes it: a name of `engine.backends`,
    or `AUTO`, on `device`. `dtype`: `float32` or `bfloat16`. A plain model's products take its
    weights as `weights` say, see `load_verifier` of these, and the keys and values of all its
    sessions take `kv_budget_bytes` at most. `progress` hears of downloads,
    `reading` of the weights as they are read. The first call of a model imports its
    back end. A diffusion model quotes the text itself where that is surer, see `quoting`; a plain
    one checks what it quotes.

    Raises `ModelNotFound`, naming those that there are, `TrainedForAnother` when
    the manifest names another verifier than `TARGET`, another `ModelUnusable`, or
    `BadParameters`.
    """
    loader = LOADERS.get(name)
    if loader is not None:
        return loader()
    model, target = split_target(name)
    if model in LOADERS:
        raise _without_target(model, target)
    folder = _resolved(model, dtype, progress)
    kind = proposer_kind(folder.path)
    if target and kind != DFLASH:
        raise _without_target(folder.model_id, target)
    if kind == AUTOREGRESSIVE:
        _begin(reading)
        loaded = load_verifier(
            folder,
            backend=backend,
            device=device,
            dtype=dtype,
            weights=weights,
            reading=reading,
        )
        return _plain(loaded, folder, kv_budget_bytes)
    if kind == MASKED_DIFFUSION:
        if device not in (ANY_DEVICE, CPU):
            raise DeviceUnavailable(
                f"{folder.model_id} is a masked-diffusion model, which the processor alone computes"
                f" here: leave --device at {ANY_DEVICE}, or serve it by another node",
                model_id=folder.model_id,
                device=device,
            )
        _begin(reading)
        return QuotingProposer(
            load_masked_diffusion(folder, backend=backend, dtype=dtype, reading=reading)
        )
    target_folder = _target(folder, target, dtype, progress)
    _begin(reading)
    return QuotingProposer(
        load_dflash(
            folder, target_folder, backend=backend, device=device, dtype=dtype, reading=reading
        )
    )


def _plain(
    loaded: Verifier, folder: ModelFolder, kv_budget_bytes: int | None
) -> AutoregressiveProposer:
    """One that drafts with the model that was loaded of `folder`."""
    with told_as_unloadable(folder.path):
        drafter = for_drafts(loaded, folder)
        ends = end_token_ids(folder.path)
    proposer = AutoregressiveProposer(drafter, ends=ends)
    drafter.pool.budget_bytes = kv_budget_bytes
    return proposer


def import_proposer(name: str, backend: str = AUTO, device: str = ANY_DEVICE) -> None:
    """Imports what `load_proposer` of the same name needs: seconds that hold up other threads.

    What kind a hub's model is its download tells: all that it may be is imported.
    Nothing for a name that `load_proposer` refuses. Raises a `ModelUnusable`
    or `BadParameters`.
    """
    if name in LOADERS:
        return
    try:
        folder = folder_here(split_target(name)[0])
    except ModelNotFound:
        return
    if folder is None:
        import_backend(backend, device)
    elif (kind := proposer_kind(folder.path)) == DFLASH:
        import_dflash(backend, device)
    elif kind == AUTOREGRESSIVE:
        import_backend(backend, device)
    else:
        import_masked_diffusion()


def _begin(reading: Progress | None) -> None:
    """Says that the load begins: to import the back end takes seconds, and is part of it."""
    if reading is not None:
        reading(0, 0)


def proposer_kind(folder: Path) -> str:
    """`DFLASH`, `AUTOREGRESSIVE` or `MASKED_DIFFUSION`, by the config in `folder`.

    Whatever is marked as a DFlash drafter is held to be one, so that none is
    loaded as the language model that its `model_type` says. Raises `ModelUnusable`.
    """
    entries = read_json_object(folder / "config.json")
    named = entries.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    marked = any(entry in entries for entry in DFLASH_ENTRIES)
    if marked or any("dflash" in name.lower() for name in names):
        return DFLASH
    family = FAMILIES.get(names[0]) if len(names) == 1 else None
    is_causal = entries.get("is_causal") is not False
    if family is not None and is_causal and entries.get("model_type") == family.model_type:
        return AUTOREGRESSIVE
    return MASKED_DIFFUSION


def _resolved(model: str, dtype: str, progress: Progress | None) -> ModelFolder:
    try:
        return resolve_model(model, dtype=dtype, progress=progress)
    except ModelNotFound as error:
        known = ", ".join(sorted(LOADERS))
        raise ModelNotFound(
            f"no proposer is called {model[:64]!r}; there is: {known}, and any model of the"
            f" hub's format: {error}",
            model_id=model[:64],
            known_models=known,
        ) from error


def _without_target(model_id: str, target: str) -> ModelUnusable:
    return ModelUnusable(
        f"{model_id} is no DFlash drafter and takes no target: leave out {TARGET_MARK}{target}",
        model_id=model_id,
    )


def _target(drafter: ModelFolder, given: str, dtype: str, progress: Progress | None) -> ModelFolder:
    """The verifier that `drafter` is for: `given`, or that of its manifest; checked by digest."""
    trained = read_trained_target(drafter.path)
    name = given or trained.model_id
    if not name:
        raise ModelUnusable(
            f"{drafter.model_id} needs the embedding and the head of the verifier that it was"
            f" trained for, and does not say which: name it, proposer={drafter.model_id}"
            f"{TARGET_MARK}TARGET, or add a training.json with its target",
            model_id=drafter.model_id,
        )
    target = resolve_model(name, dtype=dtype, progress=progress)
    check_trained_for(drafter, trained, target)
    return target

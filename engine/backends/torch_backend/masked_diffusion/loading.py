"""From a model folder to a masked diffusion proposer."""

from __future__ import annotations

import time
from collections.abc import Callable

from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.declaration import (
    Declaration,
    read_declaration,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.model import MaskedModel
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.proposer import (
    MaskedDiffusionInfo,
    MaskedDiffusionProposer,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.shift_probe import (
    ShiftEvidence,
    probe_shift,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.soundness import check_soundness
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.weights import load_masked_model
from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE
from kakeya_fleet.engine.contracts.proposer_info import MASKED_DIFFUSION
from kakeya_fleet.engine.errors import BadParameters, ModelUnusable, TrainedForAnother
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder

STEP_COUNT = 1
"""Every step is a pass, and more of them did not pay: for blocks of 16 of a small model that copies
patterns the acceptance length was 9.1 with one step, 8.8 with two, 8.3 with four."""
WINDOW = 512
"""Positions of a pass: a pass costs its positions, and drafts lean on the latest of them."""
LEAST_WINDOW = 2
"""One token of context and one mask."""
SPECIAL = ("bos_token_id", "cls_token_id", "eos_token_id", "pad_token_id", "sep_token_id")
"""Config entries of ids that no probe of the shift should hold."""


def load_masked_diffusion(
    folder: ModelFolder,
    *,
    dtype: str = "float32",
    window: int = WINDOW,
    step_count: int | None = None,
    confidence_threshold: float | None = None,
    frozen_chunk: int | None = None,
    available_bytes: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> MaskedDiffusionProposer:
    """The masked model in `folder` on the CPU, its declared shift checked.

    `window` positions at most, and at most the model's, are computed in a pass.
    `step_count` denoising steps unless a request asks for others: else the
    config's `step_count`, else `STEP_COUNT`. `confidence_threshold`: see
    `denoise`. `frozen_chunk`: see `FrozenContext`; 0 computes all in every pass,
    None is the config's. `available_bytes`: memory the weights may take; what the machine has
    available if None.

    Raises a `ModelUnusable` for what cannot be served, of which `TrainedForAnother`
    when the model clearly predicts at the other shift; `BadParameters`.
    """
    number = torch_dtype(dtype)
    _check_parameters(window, step_count, confidence_threshold)
    declaration = read_declaration(folder.path)
    blueprint = declaration.blueprint
    if available_bytes is None:
        available_bytes = system_memory.available_bytes()
    module = load_masked_model(
        folder.path, blueprint, dtype=number, available_bytes=available_bytes
    )
    model = MaskedModel(module, declaration)
    window = min(window, model.context_length)
    if window < LEAST_WINDOW:
        raise ModelUnusable(
            f"{folder.path} has {window} positions: too few for a context and a mask",
            path=str(folder.path),
        )
    check_soundness(blueprint.architecture, model, window)
    evidence = check_shift(folder, declaration, model)
    chunk = declaration.frozen_chunk if frozen_chunk is None else frozen_chunk
    _check_chunk(declaration, chunk, window)
    info = MaskedDiffusionInfo(
        model_id=folder.model_id,
        kind=MASKED_DIFFUSION,
        architecture=blueprint.architecture,
        weights_digest=weights_digest(folder.path),
        tokenizer_digest=tokenizer_digest(folder.path),
        vocabulary_size=model.vocabulary_size,
        context_length=model.context_length,
        block_size=min(MAX_BLOCK_SIZE, window - 1),
        dtype=dtype,
        backend="torch",
        mask_token_id=model.mask_token_id,
        prediction_shift=model.prediction_shift,
        shift_checked=evidence.shift is not None,
        step_count=step_count or declaration.step_count or STEP_COUNT,
        window=window,
        frozen_chunk=chunk,
    )
    return MaskedDiffusionProposer(model, info, confidence_threshold, clock)


def check_shift(folder: ModelFolder, declaration: Declaration, model: MaskedModel) -> ShiftEvidence:
    """What the model's predictions say of its shift.

    Raises `TrainedForAnother` where they clearly say the other than is declared.
    """
    config = declaration.blueprint.config
    special = [getattr(config, name, None) for name in SPECIAL]
    evidence = probe_shift(
        model,
        model.vocabulary_size,
        model.context_length,
        excluded=[token for token in special if isinstance(token, int)],
    )
    declared = declaration.prediction_shift
    if evidence.shift is not None and evidence.shift != declared:
        raise TrainedForAnother(
            f"{folder.path} declares prediction shift {declared}, but it predicts at shift "
            f"{evidence.shift}: the row {_row(evidence.shift)} knows a masked token better than "
            f"the row {_row(declared)}, by {abs(evidence.margin):.2f} nats over "
            f"{evidence.probe_count} probes (t = {abs(evidence.margin_t):.1f}); set "
            f'"prediction_shift": {evidence.shift} in its config.json',
            path=str(folder.path),
            declared_shift=str(declared),
            found_shift=str(evidence.shift),
            margin_nats=f"{evidence.margin:.3f}",
        )
    return evidence


def _check_chunk(declaration: Declaration, chunk: int, window: int) -> None:
    """Raises `BadParameters` for a chunk that cannot be frozen."""
    if chunk and not declaration.blueprint.keeps_keys:
        raise BadParameters(
            f"{declaration.blueprint.architecture} is an encoder: its code keeps no keys, "
            "so that no chunk of them can be frozen"
        )
    if not 0 <= chunk < window:
        raise BadParameters(f"a frozen chunk of {chunk} positions in a window of {window}")


def _row(shift: int) -> str:
    return "at its position" if shift == 0 else "before its position"


def _check_parameters(
    window: int, step_count: int | None, confidence_threshold: float | None
) -> None:
    """Raises `BadParameters`."""
    if window < LEAST_WINDOW:
        raise BadParameters(f"a window of {window} positions holds no context and no mask")
    if step_count is not None and step_count < 1:
        raise BadParameters(f"{step_count} denoising steps")
    if confidence_threshold is not None and not 0.0 < confidence_threshold <= 1.0:
        raise BadParameters(f"confidence {confidence_threshold} is not in (0, 1]")

"""What a masked model's `config.json` declares: architecture, mask token, prediction shift."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.errors import StrictDataclassError

from kakeya_fleet.engine.backends.architectures import POSITION_FREE_ROPE
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.blueprint import Blueprint, Entries
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.decoders import decoder_blueprint
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.encoders import encoder_blueprint
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.mask_token import mask_token_id
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable
from kakeya_fleet.engine.models.json_object import read_json_object

SHIFTS = (0, 1)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A masked model as its folder declares it.

    `prediction_shift` 0: the row of position i predicts token i; 1: it predicts
    token i + 1. `step_count` is the config's default of denoising steps, 0 when
    it gives none; `frozen_chunk` the positions of a chunk of frozen keys and values
    (see `frozen_prefix`), 0 for none.
    """

    blueprint: Blueprint
    mask_token_id: int
    prediction_shift: int
    step_count: int
    frozen_chunk: int


def read_declaration(folder: Path) -> Declaration:
    """What `config.json` and the tokenizer in `folder` declare; code in it is never run.

    Entries beyond the library's own: `prediction_shift` (0 or 1; else the
    family's), `mask_token_id` (else the tokenizer's mask token), `step_count`,
    `frozen_chunk`. Raises `ArchitectureUnsupported`, `ModelNotFound` without a config,
    `ModelUnusable` for a broken one or one without a mask token.
    """
    path = folder / "config.json"
    entries = read_json_object(path)
    try:
        blueprint = decoder_blueprint(entries) or encoder_blueprint(entries)
    except (StrictDataclassError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ModelUnusable(f"{path} is not valid: {error}", path=str(path)) from error
    _check_rope(blueprint)
    mask = mask_token_id(folder, entries)
    if mask >= blueprint.vocabulary_size:
        raise ModelUnusable(
            f"{folder}: the mask token {mask} is outside the vocabulary of "
            f"{blueprint.vocabulary_size}; correct mask_token_id in config.json",
            path=str(path),
        )
    shift = _integer(path, entries, "prediction_shift", blueprint.usual_shift)
    if shift not in SHIFTS:
        raise ModelUnusable(f"{path}: prediction_shift is {shift}, not 0 or 1", path=str(path))
    return Declaration(
        blueprint,
        mask,
        shift,
        step_count=_integer(path, entries, "step_count", 0),
        frozen_chunk=_integer(path, entries, "frozen_chunk", 0),
    )


def _integer(path: Path, entries: Entries, name: str, default: int) -> int:
    """The entry `name`, at least 0; `default` where there is none."""
    value = entries.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ModelUnusable(f"{path}: {name} is {value!r}, no count", path=str(path))
    return value


def _check_rope(blueprint: Blueprint) -> None:
    """Raises `ArchitectureUnsupported` for angles that one session would change for another."""
    parameters = getattr(blueprint.config, "rope_parameters", None) or {}
    parts = [part for part in parameters.values() if isinstance(part, dict)] or [parameters]
    for part in parts:
        kind = str(part.get("rope_type", "default"))
        if kind not in POSITION_FREE_ROPE:
            raise ArchitectureUnsupported(
                f"{blueprint.architecture} with rope_type {kind} is not served: its angles "
                "change with the longest text seen",
                architecture=blueprint.architecture,
                rope_type=kind,
            )

"""What a drafter's `training.json` says of the verifier that it was trained for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.engine.errors import ModelUnusable, TrainedForAnother
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder

MANIFEST = "training.json"


@dataclass(frozen=True, slots=True)
class TrainedTarget:
    """The verifier's name, and its digests (`engine.models.digests`), each empty if not said.

    `model_id` is what `engine.models.model_folder.resolve` takes.
    """

    model_id: str = ""
    weights_digest: str = ""
    tokenizer_digest: str = ""


def read_trained_target(folder: Path) -> TrainedTarget:
    """The `target` object of the manifest in `folder`; one of empty names without it.

    Raises `ModelUnusable` for a manifest that is not one.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return TrainedTarget()
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}", path=str(path)) from error
    target = manifest.get("target", {}) if isinstance(manifest, dict) else None
    if not isinstance(target, dict):
        raise ModelUnusable(f"{path} is not a manifest with a target", path=str(path))
    fields = [target.get(name, "") for name in TrainedTarget.__slots__]
    if not all(isinstance(field, str) for field in fields):
        raise ModelUnusable(f"{path}: the target's entries are not texts", path=str(path))
    return TrainedTarget(*fields)


def check_trained_for(drafter: ModelFolder, trained: TrainedTarget, target: ModelFolder) -> None:
    """Raises `TrainedForAnother`, naming both, unless `target` is what `drafter` was trained for.

    Only what its manifest says of the target is compared.
    """
    for entry, there, digest in (
        ("weights_digest", trained.weights_digest, weights_digest),
        ("tokenizer_digest", trained.tokenizer_digest, tokenizer_digest),
    ):
        if there and there != (here := digest(target.path)):
            raise TrainedForAnother(
                f"{drafter.model_id} was trained for {trained.model_id or 'a verifier'} with"
                f" {entry} {there[:16]}, and {target.model_id} has {here[:16]};"
                f" use a drafter trained for {target.model_id}",
                model_id=drafter.model_id,
                target=target.model_id,
                trained_for=trained.model_id,
                trained_digest=there,
                target_digest=here,
                entry=entry,
            )

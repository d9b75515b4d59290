"""Finds the learned map of a drafter, and names what it belongs to, without loading it.

The map of a drafter is in its folder's `restorer/`: a `config.json` that names
the verifier's weights and the encoder, and the weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.errors import ModelNotFound, ModelUnusable, TrainedForAnother
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.engine.models.model_folder import SHIPPED

MAP_FOLDER = "restorer"
OF_VECTORS = "features"
"""The source of maps that take context vectors as they are."""


@dataclass(frozen=True, slots=True)
class LearnedMap:
    """A drafter's map from context vectors to a verifier's keys and values.

    `width` values a position are deposited: the context vector, or, where the map
    `narrows`, what its first part makes of it on the verifier's side. Digests are
    SHA-256 in hexadecimal: of the map, of the verifier's weights, and of the encoder
    that makes the vectors. `folder` is the drafter's.
    """

    model_id: str
    folder: Path
    width: int
    narrows: bool
    map_digest: str
    verifier_model_id: str
    verifier_digest: str
    encoder_digest: str

    @property
    def path(self) -> Path:
        """The map's own folder."""
        return self.folder / MAP_FOLDER

    @property
    def spec(self) -> RestorerSpec:
        """The restorer that it is."""
        digest = restorer_digest(self.map_digest, self.encoder_digest)
        return RestorerSpec(RestorerKind.PROJECTION, self.model_id, digest, self.width)

    def check_verifier(self, verifier_model_id: str, verifier_digest: str) -> None:
        """Raises `TrainedForAnother` unless it belongs to the verifier with these weights."""
        if verifier_digest != self.verifier_digest:
            raise TrainedForAnother(
                f"the learned map of {self.model_id} restores keys and values of"
                f" {self.verifier_model_id} ({self.verifier_digest[:12]}), not of"
                f" {verifier_model_id} ({verifier_digest[:12]})",
                restorer_model=self.model_id,
                trained_for=self.verifier_digest,
                verifier=verifier_digest,
            )


def narrows(source: str, rank: int) -> bool:
    """Whether a map is in two parts, of which the first is the verifier's side's."""
    return rank > 0 and source == OF_VECTORS


def restorer_digest(map_digest: str, encoder_digest: str) -> str:
    """SHA-256, in hexadecimal digits, of both digests with a colon between."""
    return hashlib.sha256(f"{map_digest}:{encoder_digest}".encode()).hexdigest()


def map_digest(folder: Path, entries: object) -> str:
    """SHA-256, in hexadecimal digits, of the map in `folder` with the config `entries`.

    Covers `engine.models.digests.weights_digest`, a colon, and the entries as JSON with sorted
    keys: they too decide what the map makes. Raises `WeightsMismatch`.
    """
    config = json.dumps(entries, sort_keys=True)
    return hashlib.sha256(f"{weights_digest(folder)}:{config}".encode()).hexdigest()


def read_map(model_id: str, folder: Path) -> LearnedMap:
    """The map of the drafter in `folder`.

    Raises `ModelNotFound` when it has none, and `ModelUnusable` for a config
    that does not say what it belongs to.
    """
    path = folder / MAP_FOLDER / "config.json"
    if not path.is_file():
        raise ModelNotFound(
            f"{model_id} has no learned map: there is no {path}", restorer_model=model_id
        )
    try:
        entries = json.loads(path.read_bytes())
        rank, is_narrowed = int(entries["rank"]), narrows(entries["source"], int(entries["rank"]))
        width = rank if is_narrowed else int(entries["width"])
        names = [
            str(entries[key]) for key in ("verifier_model_id", "verifier_digest", "encoder_digest")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelUnusable(
            f"{path} does not say what it belongs to: {error!r}", path=str(path)
        ) from error
    digest = map_digest(path.parent, entries)
    return LearnedMap(model_id, folder, width, is_narrowed, digest, *names)


def find_map(model_id: str, verifier_digest: str, drafters: Mapping[str, Path]) -> LearnedMap:
    """The map of the drafter `model_id` among the shipped ones and `drafters`.

    An empty `model_id` finds the one that belongs to the verifier. Names alone
    are looked up: a request never makes a node read a folder of its choice.
    Raises `ModelNotFound`, naming those that there are, and `ModelUnusable`.
    """
    known = {**_shipped(), **drafters}
    if model_id:
        if model_id not in known:
            raise ModelNotFound(
                f"no drafter {model_id[:64]!r} is known here;"
                f" there are: {', '.join(sorted(known)) or 'none'}",
                restorer_model=model_id[:64],
            )
        return read_map(model_id, known[model_id])
    for name, folder in sorted(known.items()):
        if (folder / MAP_FOLDER / "config.json").is_file():
            found = read_map(name, folder)
            if found.verifier_digest == verifier_digest:
                return found
    raise ModelNotFound(
        "no drafter known here has a learned map for this verifier; name one, or restore from an"
        " archive",
        restorer_model="",
    )


def _shipped() -> dict[str, Path]:
    return {
        name: folder
        for name, folder in SHIPPED.items()
        if (folder / MAP_FOLDER / "config.json").is_file()
    }

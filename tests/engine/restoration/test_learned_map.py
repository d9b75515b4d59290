"""Learned maps are named by all that decides what they make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.restoration.learned_map import MAP_FOLDER, read_map

ENTRIES = {
    "source": "features",
    "width": 8,
    "rank": 0,
    "norm_eps": 1e-6,
    "layers": [{"kv_heads": 1, "key_norm": True}],
    "verifier_model_id": "v",
    "verifier_digest": "a" * 64,
    "encoder_digest": "b" * 64,
}


def written(folder: Path, weights: bytes = b"weights", indent: int = 2, **changes: object) -> Path:
    (folder / MAP_FOLDER).mkdir(parents=True, exist_ok=True)
    config = json.dumps(ENTRIES | changes, indent=indent)
    (folder / MAP_FOLDER / "config.json").write_text(config)
    (folder / MAP_FOLDER / "model.safetensors").write_bytes(weights)
    return folder


def test_the_same_map_is_the_same_restorer_however_its_config_is_written(tmp_path: Path) -> None:
    first = read_map("m", written(tmp_path / "first")).spec
    assert read_map("m", written(tmp_path / "second", indent=0)).spec == first


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": b"weightz"},
        {"norm_eps": 1e-5},
        {"layers": [{"kv_heads": 1, "key_norm": False}]},
        {"rotary_scaling": 2.0},
        {"rank": 4},
        {"source": "keys_values"},
        {"encoder_digest": "c" * 64},
    ],
)
def test_whatever_changes_what_a_map_makes_makes_it_another_restorer(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    first = read_map("m", written(tmp_path / "first")).spec
    other = read_map("m", written(tmp_path / "other", **changes)).spec  # type: ignore[arg-type]
    assert other.digest != first.digest


@pytest.mark.parametrize(
    "missing", ["source", "width", "rank", "verifier_digest", "encoder_digest"]
)
def test_a_map_that_does_not_say_what_it_belongs_to_is_refused(
    tmp_path: Path, missing: str
) -> None:
    folder = written(tmp_path)
    path = folder / MAP_FOLDER / "config.json"
    path.write_text(json.dumps({k: v for k, v in ENTRIES.items() if k != missing}))
    with pytest.raises(ModelUnusable, match="does not say what it belongs to"):
        read_map("m", folder)

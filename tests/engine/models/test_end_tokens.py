"""Which ids end a model's answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.end_tokens import end_token_ids


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        ({"eos_token_id": [2, 0]}, {"eos_token_id": 7}, {2, 0}),
        ({"eos_token_id": None}, {"eos_token_id": 7}, {7}),
        ({}, {"text_config": {"eos_token_id": 9}}, {9}),
        (None, {"eos_token_id": 0}, {0}),
        (None, {"eos_token_id": []}, set()),
        (None, None, set()),
    ],
)
def test_the_first_config_that_has_some_tells(
    generation: dict[str, object] | None,
    config: dict[str, object] | None,
    ends: set[int],
    tmp_path: Path,
) -> None:
    for name, entries in (("generation_config", generation), ("config", config)):
        if entries is not None:
            (tmp_path / f"{name}.json").write_text(json.dumps(entries))
    assert end_token_ids(tmp_path) == ends


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(ModelUnusable, match="generation_config"):
        end_token_ids(tmp_path)

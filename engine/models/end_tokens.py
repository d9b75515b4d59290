"""Ids that end an answer, as a model's folder has them."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.models.json_object import read_json_object

CONFIGS = ("generation_config.json", "config.json")


def end_token_ids(folder: Path) -> frozenset[int]:
    """`eos_token_id` of the first config in `folder` that has it: one id, several, or none.

    Raises `ModelUnusable` for a config that cannot be read.
    """
    for name in CONFIGS:
        if not (folder / name).exists():
            continue
        entries = read_json_object(folder / name)
        # Models of several kinds of input keep their text's config apart.
        text = entries.get("text_config")
        of_text = text.get("eos_token_id") if isinstance(text, dict) else None
        found = entries.get("eos_token_id", of_text)
        ids = found if isinstance(found, list) else [found]
        if ids and all(type(each) is int for each in ids):
            return frozenset(ids)
    return frozenset()

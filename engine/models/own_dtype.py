"""The number format that a checkpoint itself is in: what it is computed in if nothing is said."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.models.json_object import Entries, read_json_object

AUTO = "auto"
"""Stands for the checkpoint's own."""
FLOAT32, BFLOAT16 = "float32", "bfloat16"


def own_dtype(folder: Path) -> str:
    """`bfloat16` if `config.json` in `folder` says so, else `float32`.

    float16 is computed in float32, which has all its numbers; bfloat16 has an eighth of its
    precision. Raises `ModelNotFound` without a config, `ModelUnusable` for a broken one.
    """
    entries = read_json_object(folder / "config.json")
    text = entries.get("text_config")
    said = _said(entries) or (_said(text) if isinstance(text, dict) else None)
    return BFLOAT16 if said == BFLOAT16 else FLOAT32


def settled_dtype(dtype: str, folder: Path) -> str:
    """`dtype`, or the checkpoint's own in place of `AUTO`. Raises as `own_dtype`."""
    return own_dtype(folder) if dtype == AUTO else dtype


def _said(entries: Entries) -> str | None:
    """What a config says; older ones call it torch_dtype."""
    found = entries.get("dtype") or entries.get("torch_dtype")
    return str(found).removeprefix("torch.") if found is not None else None

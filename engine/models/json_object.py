"""JSON files of a model's folder."""

from __future__ import annotations

import json
from pathlib import Path

from kakeya_fleet.engine.errors import ModelNotFound, ModelUnusable

Entries = dict[str, object]


def read_json_object(path: Path) -> Entries:
    """The JSON object in `path`. Raises `ModelNotFound` without the file, else `ModelUnusable`."""
    try:
        entries = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelNotFound(f"there is no {path}", path=str(path)) from error
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}", path=str(path)) from error
    if not isinstance(entries, dict):
        raise ModelUnusable(f"{path} is not a JSON object", path=str(path))
    return entries

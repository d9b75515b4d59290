"""Names of models that mean the same on every machine, unlike paths."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.models.gguf.source import HUB_FILE, PUBLISHED
from kakeya_fleet.engine.models.model_folder import HUB_ID, SHIPPED

_UP = ".."


def is_public_name(spec: str) -> bool:
    """Whether `spec` names a shipped or published model, or one of the hub.

    False for what would be taken for a path on this machine, by its form or because something
    lies there, and for a file of the hub that is named by a way out of its repository.
    """
    if spec in SHIPPED or spec in PUBLISHED:
        return True
    if HUB_ID.fullmatch(spec) is None and HUB_FILE.fullmatch(spec) is None:
        return False
    return _UP not in spec.split("/") and not Path(spec).exists()

"""Folders of the drafters that a node serves: their learned maps may be named by sessions."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.models.model_folder import resolve
from kakeya_fleet.engine.proposers.loading import LOADERS, TARGET_MARK


def drafter_folder(name: str) -> dict[str, Path]:
    """Model id and folder of the proposer `MODEL` or `MODEL@TARGET`; nothing without a folder.

    Raises `ModelNotFound`.
    """
    if name in LOADERS:
        return {}
    has_target = TARGET_MARK in name and not Path(name).expanduser().is_dir()
    folder = resolve(name.rpartition(TARGET_MARK)[0] if has_target else name)
    return {folder.model_id: folder.path}

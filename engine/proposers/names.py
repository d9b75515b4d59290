"""What the names of proposers say, without anything that loads one."""

from __future__ import annotations

from pathlib import Path

NGRAM = "ngram"
WITHOUT_FILES = frozenset({NGRAM})
"""Proposers without a folder: those of `loading.LOADERS`."""
TARGET_MARK = "@"


def split_target(name: str) -> tuple[str, str]:
    """Model and target of `MODEL@TARGET`, an empty target without; folders may have an `@`."""
    if TARGET_MARK not in name or Path(name).expanduser().is_dir():
        return name, ""
    model, _, target = name.rpartition(TARGET_MARK)
    return model, target

"""What people call models at a terminal, as a node that has a folder of its own knows them."""

from __future__ import annotations

from pathlib import Path

_PATH_BEGINNINGS = (".", "/", "~")


def name_to_load(typed: str) -> str:
    """A folder or a GGUF file here as an absolute path, `MODEL@TARGET` part by part.

    Drafters without a folder, shipped and published models have their names before any path, as
    everywhere. What is not here stays as it was typed.
    """
    from kakeya_fleet.engine.proposers.names import TARGET_MARK, WITHOUT_FILES

    if typed in WITHOUT_FILES:
        return typed
    whole = _absolute(typed)
    if whole != typed or TARGET_MARK not in typed:
        return whole
    model, _, target = typed.rpartition(TARGET_MARK)
    return f"{_absolute(model)}{TARGET_MARK}{_absolute(target)}"


def name_to_unload(typed: str) -> str:
    """The same of what is served: its name there wins, unless it is written as a path."""
    return name_to_load(typed) if typed.startswith(_PATH_BEGINNINGS) else typed


def _absolute(part: str) -> str:
    from kakeya_fleet.engine.models.gguf.source import PUBLISHED, names_gguf
    from kakeya_fleet.engine.models.model_folder import SHIPPED

    if not part or part in SHIPPED or part in PUBLISHED:
        return part
    path = Path(part).expanduser()
    is_here = path.is_dir() or (path.is_file() and names_gguf(part))
    # Of MODEL@TARGET the whole may begin like a path and be none.
    is_meant = part.startswith(_PATH_BEGINNINGS) and path.exists()
    return str(path.absolute()) if is_here or is_meant else part

"""What people call models at a terminal, as their node knows them."""

from __future__ import annotations

from pathlib import Path

_TARGET_MARK = "@"
_PATH_BEGINNINGS = (".", "/", "~")


def name_to_load(typed: str) -> str:
    """A path here as an absolute one, since a node has a folder of its own; else as typed.

    Shipped and published models have their names before any path, as everywhere.
    """
    from kakeya_fleet.engine.models.gguf.source import PUBLISHED
    from kakeya_fleet.engine.models.model_folder import SHIPPED

    def named(part: str) -> str:
        path = Path(part).expanduser()
        is_path = part not in SHIPPED and part not in PUBLISHED and path.exists()
        return str(path.absolute()) if part and is_path else part

    whole = named(typed)
    if whole != typed or _TARGET_MARK not in typed:
        return whole
    model, _, target = typed.rpartition(_TARGET_MARK)
    return f"{named(model)}{_TARGET_MARK}{named(target)}"


def name_to_unload(typed: str) -> str:
    """The same of what is served: its name there wins, unless it is written as a path."""
    return name_to_load(typed) if typed.startswith(_PATH_BEGINNINGS) else typed

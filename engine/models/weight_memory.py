"""Whether a model's weights fit into the machine, before one is read."""

from __future__ import annotations

from pathlib import Path

from kakeya_fleet.engine.errors import OutOfMemory


def check_weights_fit(
    folder: Path,
    needed_bytes: int,
    available_bytes: int,
    *,
    instead: str = "a smaller model or dtype bfloat16",
) -> None:
    """Raises `OutOfMemory` when loading takes more than is available.

    `needed_bytes` has what is there twice while weights are converted, joined or packed.
    `instead` is what a person can choose that takes less.
    """
    if needed_bytes > available_bytes:
        raise OutOfMemory(
            f"{folder} needs {needed_bytes:,} bytes of memory and {available_bytes:,} are"
            f" available; close other programs, or choose {instead}",
            needed_bytes=str(needed_bytes),
            available_bytes=str(available_bytes),
        )

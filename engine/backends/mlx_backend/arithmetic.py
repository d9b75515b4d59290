"""What rounds, besides shapes: by equal names equal numbers have equal bits."""

from __future__ import annotations

import importlib.metadata
import platform

import mlx.core as mx

from kakeya_fleet.engine.contracts.verifier import Verifier


def arithmetic(_verifier: Verifier) -> str:
    """The library's version, and the device that computes."""
    version = importlib.metadata.version("mlx")
    return f"mlx {version} {platform.machine()} {mx.default_device()}"

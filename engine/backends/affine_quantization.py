"""What a quantized MLX checkpoint's config says of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kakeya_fleet.engine.errors import ArchitectureUnsupported

AFFINE = "affine"
"""The mode served: a scale and a bias for each group of weights."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """`bits` of a weight in groups of `group_size`.

    `layers` has those of single layers by name, None for one left as it was.
    """

    bits: int
    group_size: int
    layers: dict[str, tuple[int, int] | None]

    @property
    def label(self) -> str:
        """Such as `mlx-4bit-g64`; with `-mixed` when some layers have other bits."""
        own = (self.bits, self.group_size)
        mixed = any(layer is not None and layer != own for layer in self.layers.values())
        return f"mlx-{self.bits}bit-g{self.group_size}" + ("-mixed" if mixed else "")


def read_quantization(
    entries: dict[str, object], text_name: Callable[[str], str | None]
) -> Quantization | None:
    """What `quantization` in the config's `entries` says; None when there is none.

    `text_name` gives the text model's name of a stored one. Raises `ValueError`
    for what is not valid, `ArchitectureUnsupported` for a mode not served.
    """
    asked = entries.get("quantization")
    if asked is None:
        return None
    if not isinstance(asked, dict):
        raise ValueError("quantization is not an object")
    bits, group_size = _sizes(asked)
    layers: dict[str, tuple[int, int] | None] = {}
    for name, entry in asked.items():
        if isinstance(entry, dict | bool):
            own = text_name(name)
            if own is not None:
                layers[own] = (
                    _sizes(entry) if isinstance(entry, dict) else _switch(entry, (bits, group_size))
                )
    return Quantization(bits, group_size, layers)


def _switch(quantized: bool, sizes: tuple[int, int]) -> tuple[int, int] | None:  # noqa: FBT001
    return sizes if quantized else None


def _sizes(entry: dict[str, object]) -> tuple[int, int]:
    """Bits and group size."""
    mode = entry.get("mode", AFFINE)
    if mode != AFFINE:
        raise ArchitectureUnsupported(
            f"weights quantized in mode {mode} are not served; served is {AFFINE}",
            architecture=f"quantization {mode}",
        )
    bits, group_size = entry.get("bits"), entry.get("group_size")
    if not isinstance(bits, int) or not isinstance(group_size, int):
        raise ValueError(f"quantization with bits {bits!r} and group_size {group_size!r}")
    return bits, group_size

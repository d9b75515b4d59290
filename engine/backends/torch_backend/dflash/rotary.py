"""Rotary positions of a drafter (Su et al., 2021), at absolute positions."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kakeya_fleet.engine.backends.dflash.config import ARCHITECTURE, DFlashConfig
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable

FIRST_POSITIONS = 1024


class Rotary:
    """Angles of positions; scaled frequencies are those of the library.

    Keeps a table, doubled when a position lies beyond it: 8 bytes a position and
    number of a head. Used by one thread at a time.
    """

    def __init__(self, config: DFlashConfig) -> None:
        """Raises `ArchitectureUnsupported` when only a part of a head is rotated."""
        self._frequencies, self._scaling = _frequencies(config.rotary, config.head_dim)
        if len(self._frequencies) * 2 != config.head_dim:
            raise ArchitectureUnsupported(
                f"{ARCHITECTURE} that rotates {len(self._frequencies) * 2} of {config.head_dim}"
                " numbers of a head is not served",
                architecture=ARCHITECTURE,
            )
        self._table = self._computed(FIRST_POSITIONS)

    def angles(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Cosines [n, head_dim] and sines, both float32, of positions `first` onwards.

        The first half of a row of sines is negated: with halves (a, b) of a head,
        (a, b) cos + (b, a) sin is the head turned.
        """
        end = first + count
        cos, sin = self._table
        if end > len(cos):
            cos, sin = self._table = self._computed(max(end, 2 * len(cos)))
        return cos[first:end], sin[first:end]

    def _computed(self, count: int) -> tuple[Tensor, Tensor]:
        """The angles of the first `count` positions."""
        angles = torch.outer(torch.arange(count, dtype=torch.float32), self._frequencies)
        cos, sin = angles.cos() * self._scaling, angles.sin() * self._scaling
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _frequencies(config: Qwen3Config, head_dim: int) -> tuple[Tensor, float]:
    """Inverse frequencies [n] and the factor of cosines and sines."""
    kind = config.rope_parameters.get("rope_type", "default")
    if kind == "default":
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        return 1.0 / config.rope_parameters["rope_theta"] ** exponents, 1.0
    try:
        found = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelUnusable(f"config.json: no RoPE of type {kind}: {error!r}") from error
    frequencies: Tensor = found[0]
    return frequencies, float(found[1])

"""Rotary positions of a drafter (Su et al., 2021).

The scalings are those of position interpolation (Chen et al., 2023), of Llama 3 (Grattafiori
et al., 2024) and YaRN (Peng et al., 2023), with the library's names of their parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable

Frequencies = NDArray[np.float32]
Table = tuple[NDArray[np.float32], NDArray[np.float32]]
FIRST_POSITIONS = 1024


class Angles:
    """Cosines and sines of absolute positions.

    Keeps a table, doubled when a position lies beyond it: 8 bytes a position and
    number of a head. Used by one thread at a time.
    """

    def __init__(self, config: DFlashConfig) -> None:
        """Raises `ArchitectureUnsupported` when only a part of a head is rotated.

        `ModelUnusable` for parameters that are missing or cannot be.
        """
        self._frequencies, self._scaling = _frequencies(config)
        self._table = self._computed(FIRST_POSITIONS)

    def of(self, first: int, count: int) -> Table:
        """Cosines [n, head_dim] and sines of positions `first` onwards.

        The first half of a row of sines is negated: with halves (a, b) of a head,
        (a, b) cos + (b, a) sin is the head turned.
        """
        end = first + count
        cos, sin = self._table
        if end > len(cos):
            cos, sin = self._table = self._computed(max(end, 2 * len(cos)))
        return cos[first:end], sin[first:end]

    def _computed(self, count: int) -> Table:
        """The angles of the first `count` positions."""
        angles = np.outer(np.arange(count, dtype=np.float32), self._frequencies)
        scale = np.float32(self._scaling)
        cos, sin = np.cos(angles) * scale, np.sin(angles) * scale
        return np.concatenate((cos, cos), axis=1), np.concatenate((-sin, sin), axis=1)


def _frequencies(config: DFlashConfig) -> tuple[Frequencies, float]:
    """Inverse frequencies [head_dim / 2] and the factor of cosines and sines."""
    parameters = cast(Mapping[str, object], config.rotary.rope_parameters)
    kind = str(parameters.get("rope_type", "default"))
    if parameters.get("partial_rotary_factor", 1.0) not in (None, 1.0):
        raise ArchitectureUnsupported(
            f"{config.architecture} that rotates a part of a head is not served",
            architecture=config.architecture,
        )
    try:
        base = _number(parameters, "rope_theta")
        exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
        plain: Frequencies = np.float32(1.0) / np.float32(base) ** exponents
        if kind == "linear":
            return plain / np.float32(_number(parameters, "factor")), 1.0
        if kind == "proportional":
            return plain / np.float32(_number(parameters, "factor", 1.0)), 1.0
        if kind == "llama3":
            return _llama3(plain, parameters), 1.0
        if kind == "yarn":
            return _yarn(plain, base, parameters)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelUnusable(f"config.json: no RoPE of type {kind}: {error!r}") from error
    if kind != "default":
        raise ArchitectureUnsupported(
            f"{config.architecture} with RoPE of type {kind} is not served",
            architecture=config.architecture,
            rope_type=kind,
        )
    return plain, 1.0


def _llama3(plain: Frequencies, parameters: Mapping[str, object]) -> Frequencies:
    """Long waves are stretched, short ones kept, those between interpolated."""
    factor, low = _number(parameters, "factor"), _number(parameters, "low_freq_factor")
    high = _number(parameters, "high_freq_factor")
    trained = _number(parameters, "original_max_position_embeddings")
    waves = 2 * math.pi / plain
    blend = (trained / waves - low) / (high - low)
    # 0 stretches, 1 keeps.
    blend = np.clip(blend, 0.0, 1.0)
    return np.asarray((1 - blend) * plain / factor + blend * plain, np.float32)


def _yarn(
    plain: Frequencies, base: float, parameters: Mapping[str, object]
) -> tuple[Frequencies, float]:
    """Interpolated where few turns fit the trained length, kept where many do; with a ramp."""
    factor = _number(parameters, "factor")
    trained = _number(parameters, "original_max_position_embeddings")
    head_dim = 2 * len(plain)

    def dimension(turns: float) -> float:
        return head_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = dimension(_number(parameters, "beta_fast", 32.0))
    high = dimension(_number(parameters, "beta_slow", 1.0))
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(len(plain), dtype=np.float32) - low) / (high - low), 0.0, 1.0)
    found = plain / factor * ramp + plain * (1.0 - ramp)
    return found.astype(np.float32), _attention_factor(factor, parameters)


def _attention_factor(factor: float, parameters: Mapping[str, object]) -> float:
    """What YaRN multiplies cosines and sines by."""

    def of(scale: float, weight: float = 1.0) -> float:
        return 1.0 if scale <= 1.0 else 0.1 * weight * math.log(scale) + 1.0

    if parameters.get("attention_factor") is not None:
        return _number(parameters, "attention_factor")
    if parameters.get("mscale") and parameters.get("mscale_all_dim"):
        whole = of(factor, _number(parameters, "mscale_all_dim"))
        return of(factor, _number(parameters, "mscale")) / whole
    return of(factor)


def _number(parameters: Mapping[str, object], name: str, default: float | None = None) -> float:
    """`parameters[name]`, a positive number; `default` when it is not given."""
    value = parameters.get(name)
    if value is None:
        value = default
    if value is None:
        raise LookupError(f"it has no {name}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0.0:
        raise ValueError(f"{name} is {value!r}")
    return float(value)

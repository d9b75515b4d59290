"""What codecs have to know of a model before they pack its keys and values.

Found once, on texts, by `python -m scripts.train.calibrate_codecs`; kept by `calibration_file.py`.
Codecs that need it are made here, and are none of those that sessions choose by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.codecs.grid_codec import Axis, GridCodec
from kakeya_fleet.engine.codecs.level_table import LevelTable
from kakeya_fleet.engine.codecs.refused import CalibrationRefused, CodecRefused
from kakeya_fleet.engine.codecs.rotary import Rotary
from kakeya_fleet.engine.codecs.squat_codec import SquatCodec
from kakeya_fleet.engine.codecs.steering import STRENGTH, steering
from kakeya_fleet.engine.codecs.table_codec import KeyTableCodec, ValueTableCodec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from kakeya_fleet.engine.codecs.tile import Floats

BITS = (4, 3, 2)
MEND = "make it anew: python -m scripts.train.calibrate_codecs"
GROUP = 32
"""Positions of a grid of SQuat, as of KIVI."""
LEAST_REACH = 2.0**-14
"""Of a channel's range: what varies less is kept as its middle."""
_MOST = 65504.0
_LIMITS = {"layers": 4096, "heads": 4096, "head_dim": 1024, "directions": 1024}
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Of one model, whose weights' digest is `model_digest`; all float32, layer by layer.

    `directions` [layers, kv_heads, r, head_dim]: singular vectors of the queries of a K/V head,
    turned by their positions, times their singular values, as of a prompt of 1,024 tokens.
    `middles` and `reaches` [layers, kv_heads, head_dim]: ranges of the keys' channels before they
    are turned. `frequencies` [head_dim / 2]: of the rotary embedding. `edges` and `levels` by bits
    [layers, 2, ...]: tables of keys and of values. Raises `CalibrationRefused` where sizes differ
    or numbers are beyond all reason.
    """

    model_digest: str
    directions: Floats
    middles: Floats
    reaches: Floats
    frequencies: Floats
    edges: Mapping[int, Floats]
    levels: Mapping[int, Floats]

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.model_digest):
            raise CalibrationRefused(f"a calibration names no model's digest; {MEND}")
        for name, (found, shape) in self._shapes().items():
            if found.dtype != np.float32 or found.shape != shape:
                raise CalibrationRefused(
                    f"{name} of a calibration are {found.dtype} {list(found.shape)}, "
                    f"not float32 {list(shape)}; {MEND}"
                )
            # A comparison with what is no number is false.
            if not (np.abs(found) <= _MOST).all():
                raise CalibrationRefused(
                    f"{name} of a calibration are not finite or too large; {MEND}"
                )
        if (self.reaches < LEAST_REACH).any() or (np.abs(self.frequencies) > 1).any():
            raise CalibrationRefused(f"a calibration has ranges or turns of no model; {MEND}")
        self._check_tables()

    @property
    def layers(self) -> int:
        """Of the model."""
        return len(self.middles)

    @property
    def kv_heads(self) -> int:
        """Of each layer."""
        return len(self.middles[0])

    @property
    def rotary(self) -> Rotary:
        """Takes the positions' turns off the keys, and puts them on."""
        return Rotary(self.frequencies)

    def squat(self, bits: int, layer: int, head: int, strength: float = STRENGTH) -> SquatCodec:
        """Of a head's keys, turned as they lie in a cache; `kivi` of as many bits unpacks them."""
        kivi = GridCodec(f"kivi{bits}", bits, Axis.CHANNEL, GROUP)
        steered = steering(self.directions[layer, head], strength)
        return SquatCodec(f"squat{bits}", kivi, steered)

    def kvquant_keys(self, bits: int, layer: int, head: int) -> KeyTableCodec:
        """Of a head's keys that `rotary` has turned back."""
        ranges = self.middles[layer, head], self.reaches[layer, head]
        return KeyTableCodec(f"kvquant{bits}", self._table(bits, layer, 0), *ranges)

    def kvquant_values(self, bits: int, layer: int) -> ValueTableCodec:
        """Of a layer's values."""
        return ValueTableCodec(f"kvquant{bits}", self._table(bits, layer, 1))

    def _table(self, bits: int, layer: int, part: int) -> LevelTable:
        return LevelTable(self.edges[bits][layer, part], self.levels[bits][layer, part])

    def _shapes(self) -> dict[str, tuple[NDArray[Any], tuple[int, ...]]]:
        """Each array, and the shape that it has to have. Raises `CalibrationRefused`."""
        if (
            self.directions.ndim != 4
            or set(self.edges) != set(BITS)
            or set(self.levels) != set(BITS)
        ):
            raise CalibrationRefused(f"a calibration lacks directions or tables; {MEND}")
        layers, heads, count, head_dim = self.directions.shape
        sizes = {"layers": layers, "heads": heads, "head_dim": head_dim, "directions": count}
        for name, size in sizes.items():
            if not 1 <= size <= _LIMITS[name]:
                raise CalibrationRefused(f"a calibration of {size} {name}; {MEND}")
        each = layers, heads, head_dim
        found: dict[str, tuple[NDArray[Any], tuple[int, ...]]] = {
            "directions": (self.directions, self.directions.shape),
            "middles": (self.middles, each),
            "reaches": (self.reaches, each),
            "frequencies": (self.frequencies, (head_dim // 2,)),
        }
        for bits in BITS:
            found[f"edges of {bits} bits"] = self.edges[bits], (layers, 2, 2**bits - 1)
            found[f"levels of {bits} bits"] = self.levels[bits], (layers, 2, 2**bits)
        return found

    def _check_tables(self) -> None:
        for bits in BITS:
            for layer in range(self.layers):
                for part in range(2):
                    try:
                        self._table(bits, layer, part)
                    except CodecRefused as error:
                        raise CalibrationRefused(f"a calibration: {error}; {MEND}") from error

"""How the calibrated codecs round: each head's keys by what was found for that head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from kakeya_fleet.engine.codecs.calibration import BITS, Calibration
from kakeya_fleet.engine.codecs.calibration_file import read_calibration
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.tile import Codec
from kakeya_fleet.engine.models.digests import weights_digest
from scripts.eval.codec_rivals import OwnRounding, Rounding
from scripts.train.calibrate_codecs import calibrate


class SquatRounding:
    """Keys by SQuat, values by KIVI in as many bits."""

    def __init__(self, calibration: Calibration, bits: int) -> None:
        self._calibration = calibration
        self._bits = bits

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        kivi = codec_named(f"kivi{self._bits}")
        if part:
            return OwnRounding(kivi.keys, kivi.values)(tiles, part, first)
        packed = np.concatenate(
            [codec.encode(tile[None]) for codec, tile in zip(self._codecs, tiles, strict=True)]
        )
        # As any reader would: it needs no calibration.
        return kivi.keys.decode(packed, tiles.shape[-1]), packed.nbytes

    @cached_property
    def _codecs(self) -> list[Codec]:
        return [
            self._calibration.squat(self._bits, layer, head)
            for layer in range(self._calibration.layers)
            for head in range(self._calibration.kv_heads)
        ]


class KvquantRounding:
    """KVQuant: keys turned back by their positions before they are packed, and turned again."""

    def __init__(self, calibration: Calibration, bits: int) -> None:
        self._calibration = calibration
        heads = range(calibration.kv_heads)
        layers = range(calibration.layers)
        self._codecs: tuple[list[Codec], list[Codec]] = (
            [calibration.kvquant_keys(bits, layer, head) for layer in layers for head in heads],
            [calibration.kvquant_values(bits, layer) for layer in layers for _ in heads],
        )

    def __call__(self, tiles: np.ndarray, part: int, first: int) -> tuple[np.ndarray, int]:
        """See `Rounding`."""
        rotary, firsts = self._calibration.rotary, np.full(len(tiles), first)
        asked = tiles if part else rotary.turned_back(tiles, firsts)
        found, nbytes = np.empty_like(asked), 0
        for index, codec in enumerate(self._codecs[part]):
            packed = codec.encode(asked[index : index + 1])
            found[index] = codec.decode(packed, tiles.shape[-1])[0]
            nbytes += packed.nbytes
        return (found if part else rotary.turned(found, firsts)), nbytes


def calibrated_roundings(model: str, folder: Path, file: Path) -> Iterator[tuple[str, Rounding]]:
    """By name, for the model in `folder`; the calibration is made where there is none."""
    if not file.exists():
        print(f"calibrating on other pages: {file}", flush=True)
        calibrate(model, file)
    calibration = read_calibration(file, weights_digest(folder))
    for bits in BITS:
        yield f"squat{bits}", SquatRounding(calibration, bits)
    for bits in BITS:
        yield f"kvquant{bits}", KvquantRounding(calibration, bits)

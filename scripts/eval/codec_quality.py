"""What packed keys and values cost in quality, and how many bits they take.

    python -m scripts.eval.codec_quality --out benchmarks/codec_quality.json

On text that nobody trained on, pages of this repository's docs in windows. A history is read in
forwards of 64 tokens. Once a tile of 64 positions is out of the latest 64 it is packed, unpacked
and put back: all that is computed afterwards sees it so. The first 64 positions stay as they are.
Others' arithmetic is tried on the same tiles, with the same sinks and tails. What has to be
calibrated is so on other pages (`scripts.train.calibrate_codecs`), where it was not before.
Behind every eighth token, against the cache's own numbers: the Kullback-Leibler divergence of the
next token's distribution (its mean, and what one of a thousand exceeds), whether both choose the
same token, and the perplexity. And facts in such text, one a prompt: how many are recalled.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.machine import command, machine, write_report
from scripts.eval.calibrated_rounding import calibrated_roundings
from scripts.eval.codec_rivals import Rounding, own_roundings, rival_roundings
from scripts.eval.quality_sides import OwnSide
from scripts.eval.weights_quality import PAGES, compared, perplexity, places_of, recalled, texts
from scripts.train.calibrate_codecs import CALIBRATED_ON, CALIBRATION

SINK_TILES = 1
TAIL = TILE


class PackedSide(OwnSide):
    """A verifier whose keys and values are packed once they are `TAIL` positions old."""

    def __init__(self, verifier: Verifier, rounding: Rounding) -> None:
        super().__init__(verifier)
        self._rounding = rounding
        self._packed = SINK_TILES
        self.bytes = 0
        self.values = 0

    @property
    def bits_a_value(self) -> float:
        """Of all that was packed, with its scales."""
        return 8 * self.bytes / self.values

    def before(self, cache: Any, first: int) -> None:
        """Packs what has become old by position `first`."""
        begun = self._packed if first else SINK_TILES
        self._packed = max(begun, (first - TAIL) // TILE)
        for tile in range(begun, self._packed):
            for group in cache.groups:
                store = cache.store(group)
                numbers = store.positions(tile * TILE, (tile + 1) * TILE)
                store.put(tile * TILE, self._through(numbers, tile * TILE))

    def _through(self, raw: np.ndarray, first: int) -> np.ndarray:
        """Numbers [layers, 2, kv_heads, 64, head_dim], packed and unpacked, in their format."""
        numbers = floats(raw)
        for index in range(2):
            part = numbers[:, index]
            tiles = np.ascontiguousarray(part).reshape(-1, TILE, part.shape[-1])
            found, nbytes = self._rounding(tiles, index, first)
            self.bytes += nbytes
            self.values += tiles.size
            numbers[:, index] = found.reshape(part.shape)
        return as_format(numbers, raw.dtype)


def floats(raw: np.ndarray) -> np.ndarray:
    """Float32 of numbers as they lie in a cache; a copy."""
    if raw.dtype == np.uint16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)


def as_format(numbers: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """The inverse of `floats`, to the nearest bfloat16, ties to even."""
    if dtype != np.uint16:
        return numbers
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def tail_divergence(own: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    """The divergence that one place of a thousand exceeds."""
    ours, theirs = np.concatenate(list(own)), np.concatenate(list(other))
    return float(np.quantile((np.exp(ours) * (ours - theirs)).sum(axis=1), 0.999))


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--codecs", default="", help="names, with commas; all by default")
    parser.add_argument("--tokens", type=int, default=1024, help="of a window, one a page")
    parser.add_argument("--needles", type=int, default=40, help="prompts with a fact")
    parser.add_argument("--needle-tokens", type=int, default=700, help="of each")
    parser.add_argument("--calibration", type=Path, default=CALIBRATION)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/codec_quality.json"))
    arguments = parser.parse_args(words)
    model = resolve_model(arguments.model)
    text = TextCodec.from_folder(model.path)
    windows, needles = texts(text, arguments.tokens, arguments.needles, arguments.needle_tokens)
    verifier = load_verifier(model, backend="torch", dtype="auto")
    side = OwnSide(verifier)
    own = [side.log_probabilities(window, places_of(window)) for window in windows]
    of_codecs: dict[str, dict[str, object]] = {
        "none": {"perplexity": perplexity(own, windows), "needles": recalled(side, needles, text)}
    }
    print("none", of_codecs["none"], flush=True)
    asked = arguments.codecs.split(",") if arguments.codecs else None
    calibrated = calibrated_roundings(arguments.model, model.path, arguments.calibration)
    for name, rounding in chain(own_roundings(), calibrated, rival_roundings()):
        if asked is not None and name not in asked:
            continue
        packed = PackedSide(verifier, rounding)
        found = [packed.log_probabilities(window, places_of(window)) for window in windows]
        of_codecs[name] = {
            "bits_a_value": packed.bits_a_value,
            **compared(own, found),
            "divergence_of_one_in_1000": tail_divergence(own, found),
            "perplexity": perplexity(found, windows),
            "needles": recalled(packed, needles, text),
        }
        print(name, of_codecs[name], flush=True)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "pages": PAGES,
        "calibrated_on": CALIBRATED_ON,
        "tokens": sum(len(window) for window in windows),
        "places": sum(len(places_of(window)) for window in windows),
        "needle_tokens": arguments.needle_tokens,
        "of_codecs": of_codecs,
    }
    write_report(arguments.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether several codecs by age serve a history better than one codec behind a window.

    python -m scripts.eval.codec_tiers --out benchmarks/codec_tiers.json

On text that nobody trained on, as `scripts.eval.codec_quality` reads it: a history in forwards of
64 tokens, the first 64 positions as they are. A tile of 64 positions goes from tier to tier as it
gets older, each time from what the tier before made of it, as a cache has nothing else. Compared
is what is told behind late tokens, where the oldest tier is in use, with what each takes: bits a
number of all positions behind the first 64, those that are not packed at 16, of a history of
some lengths.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.node.planning.kv_quality import bits_of
from scripts.bench.machine import command, machine, write_report
from scripts.eval.codec_quality import SINK_TILES, as_format, floats, tail_divergence
from scripts.eval.codec_rivals import OwnRounding
from scripts.eval.quality_sides import OwnSide
from scripts.eval.weights_quality import EVERY, PAGES, compared, texts

HOT = TILE
WARM = 448
"""Positions of the middle tier."""
PLAIN_BITS = 16.0
LENGTHS = (2_048, 8_192, 32_768)


@dataclass(frozen=True, slots=True)
class Tier:
    """A codec of positions that are at least so many tokens old."""

    age: int
    codec: str


WAYS: dict[str, tuple[Tier, ...]] = {
    **{f"{codec} behind {HOT}": (Tier(HOT, codec),) for codec in ("kvarn4", "kvarn3", "kvarn2")},
    **{
        f"{warm} behind {HOT}, {cold} behind {HOT + WARM}": (
            Tier(HOT, warm),
            Tier(HOT + WARM, cold),
        )
        for warm, cold in (("int8", "kvarn3"), ("kvarn4", "kvarn3"), ("kvarn4", "kvarn2"))
    },
    **{
        f"{codec} behind {HOT + WARM}": (Tier(HOT + WARM, codec),)
        for codec in ("kvarn4", "kvarn3", "kvarn2")
    },
}


def bits_at(tiers: Sequence[Tier], length: int) -> float:
    """Bits a number on average, of a history of `length` without its first positions."""
    count = length - SINK_TILES * TILE
    borders = [0, *(tier.age for tier in tiers), count]
    bits = [PLAIN_BITS, *(bits_of(tier.codec) for tier in tiers)]
    spans = [min(end, count) - min(start, count) for start, end in pairwise(borders)]
    return sum(span * each for span, each in zip(spans, bits, strict=True)) / count


class TieredSide(OwnSide):
    """A verifier whose keys and values go from tier to tier."""

    def __init__(self, verifier: Verifier, tiers: Sequence[Tier]) -> None:
        super().__init__(verifier)
        found = [codec_named(tier.codec) for tier in tiers]
        self._roundings = [OwnRounding(each.keys, each.values) for each in found]
        self._ages = [tier.age for tier in tiers]
        self._ends = [SINK_TILES] * len(tiers)

    def before(self, cache: Any, first: int) -> None:
        """Moves what has become old by position `first`."""
        if not first:
            self._ends = [SINK_TILES] * len(self._ages)
        for index, age in enumerate(self._ages):
            end = max(self._ends[index], (first - age) // TILE)
            for tile in range(self._ends[index], end):
                self._move(cache, tile, self._roundings[index])
            self._ends[index] = end

    def _move(self, cache: Any, tile: int, rounding: OwnRounding) -> None:
        for group in cache.groups:
            store = cache.store(group)
            raw = store.positions(tile * TILE, (tile + 1) * TILE)
            numbers = floats(raw)
            for part in range(2):
                tiles = np.ascontiguousarray(numbers[:, part])
                shape = tiles.shape
                found, _ = rounding(tiles.reshape(-1, TILE, shape[-1]), part, tile * TILE)
                numbers[:, part] = found.reshape(shape)
            store.put(tile * TILE, as_format(numbers, raw.dtype))


def late_places(window: Sequence[int]) -> range:
    """Tokens whose successors are looked at: behind all tiers, and as many again."""
    return range(2 * (HOT + WARM) - 1, len(window) - 1, EVERY)


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2560, help="of a window, one a page")
    parser.add_argument("--ways", default="", help="names, with semicolons; all by default")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/codec_tiers.json"))
    arguments = parser.parse_args(words)
    model = resolve_model(arguments.model)
    text = TextCodec.from_folder(model.path)
    windows, _ = texts(text, arguments.tokens, 0, 0)
    windows = [window for window in windows if late_places(window)]
    verifier = load_verifier(model, backend="torch", dtype="auto")
    side = OwnSide(verifier)
    own = [side.log_probabilities(window, late_places(window)) for window in windows]
    of_ways: dict[str, dict[str, object]] = {}
    for name in arguments.ways.split(";") if arguments.ways else WAYS:
        tiered = TieredSide(verifier, WAYS[name])
        found = [tiered.log_probabilities(window, late_places(window)) for window in windows]
        of_ways[name] = {
            "bits_a_value": {str(length): bits_at(WAYS[name], length) for length in LENGTHS},
            **compared(own, found),
            "divergence_of_one_in_1000": tail_divergence(own, found),
        }
        print(name, of_ways[name], flush=True)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "pages": PAGES,
        "tokens": sum(len(window) for window in windows),
        "places": sum(len(late_places(window)) for window in windows),
        "of_ways": of_ways,
    }
    write_report(arguments.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

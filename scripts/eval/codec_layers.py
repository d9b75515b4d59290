"""Whether keys and values of some layers are worth more bits than those of others.

    python -m scripts.eval.codec_layers --out benchmarks/codec_layers.json

The finer of two codecs for a half or a quarter of what layers keep, the coarser for the rest, as
`scripts.eval.codec_quality` packs it. What moves the next token's distribution most when it alone
is packed by the coarser one, on the first pages of that text, has the finer one: whole layers, or
keys and values of layers apart. On the other pages, all packed, against others of the same bits:
the opposite choice, every other layer, the finer one for all keys, and for all values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.machine import command, machine, write_report
from scripts.eval.codec_quality import PackedSide, as_format, floats, tail_divergence
from scripts.eval.codec_rivals import OwnRounding, Rounding
from scripts.eval.quality_sides import OwnSide
from scripts.eval.weights_quality import PAGES, compared, perplexity, places_of, texts

PAIRS = (("kvarn4", "kvarn3"), ("kvarn3", "kvarn2"))
"""The finer and the coarser."""
KEYS, VALUES = 0, 1
Part = tuple[int, int]
"""A layer's `KEYS` or `VALUES`."""
Assignment = Mapping[Part, str]
"""Codecs by name; what is not in it stays as it is."""


class AssignedSide(PackedSide):
    """A verifier whose layers are packed as `assignment` says."""

    def __init__(self, verifier: Verifier, assignment: Assignment) -> None:
        super().__init__(verifier, rounding_of(PAIRS[0][0]))
        self._assignment = {part: rounding_of(name) for part, name in assignment.items()}

    def _through(self, raw: np.ndarray, first: int) -> np.ndarray:
        """See `PackedSide`."""
        numbers = floats(raw)
        for (layer, index), rounding in self._assignment.items():
            tiles = np.ascontiguousarray(numbers[layer, index])
            found, nbytes = rounding(tiles, index, first)
            self.bytes += nbytes
            self.values += tiles.size
            numbers[layer, index] = found
        return as_format(numbers, raw.dtype)


def rounding_of(name: str) -> Rounding:
    """That of a codec that sessions may name."""
    codec = codec_named(name)
    return OwnRounding(codec.keys, codec.values)


def parts_of(layers: int) -> list[Part]:
    """All of a model's."""
    return [(layer, index) for layer in range(layers) for index in (KEYS, VALUES)]


def assignments(
    moved: Mapping[Part, float], layers: int, finer: str, coarser: str
) -> dict[str, Assignment]:
    """What is tried: both codecs for all, and those that give half of the parts the finer one."""
    parts = parts_of(layers)
    of_layer = {layer: moved[layer, KEYS] + moved[layer, VALUES] for layer in range(layers)}
    by_layer = sorted(range(layers), key=of_layer.__getitem__, reverse=True)
    by_part = sorted(parts, key=moved.__getitem__, reverse=True)
    sensitive, robust = by_layer[: layers // 2], by_layer[layers - layers // 2 :]
    halves: dict[str, set[Part]] = {
        "the sensitive layers": {part for part in parts if part[0] in sensitive},
        "the sensitive keys and values": set(by_part[: len(parts) // 2]),
        "the most sensitive quarter": set(by_part[: len(parts) // 4]),
        "the other layers": {part for part in parts if part[0] in robust},
        "every other layer": {part for part in parts if part[0] % 2},
        "all keys": {part for part in parts if part[1] == KEYS},
        "all values": {part for part in parts if part[1] == VALUES},
    }
    found: dict[str, Assignment] = {
        f"{name} for all": dict.fromkeys(parts, name) for name in (finer, coarser)
    }
    for name, half in halves.items():
        found[f"{finer} for {name}"] = {part: finer if part in half else coarser for part in parts}
    return found


def moved_alone(
    verifier: Verifier,
    own: Sequence[np.ndarray],
    windows: Sequence[Sequence[int]],
    coarser: str,
    layers: int,
) -> dict[Part, float]:
    """The divergence that each part makes when it alone is packed by the coarser codec."""
    found = {}
    for part in parts_of(layers):
        side = AssignedSide(verifier, {part: coarser})
        other = [side.log_probabilities(window, places_of(window)) for window in windows]
        found[part] = compared(own, other)["divergence_nats"]
        print(f"{coarser} alone, {part}: {found[part]:.6f}", flush=True)
    return found


def of_pair(
    verifier: Verifier, windows: Sequence[Sequence[int]], first: int, finer: str, coarser: str
) -> dict[str, Any]:
    """What one pair of codecs gives: chosen on the `first` windows, told of the others."""
    chosen, told = windows[:first], windows[first:]
    plain = OwnSide(verifier)
    layers = verifier.info.layer_count
    own = [plain.log_probabilities(window, places_of(window)) for window in chosen]
    moved = moved_alone(verifier, own, chosen, coarser, layers)
    own = [plain.log_probabilities(window, places_of(window)) for window in told]
    of_ways: dict[str, dict[str, object]] = {}
    for name, assignment in assignments(moved, layers, finer, coarser).items():
        side = AssignedSide(verifier, assignment)
        other = [side.log_probabilities(window, places_of(window)) for window in told]
        of_ways[name] = {
            "bits_a_value": side.bits_a_value,
            **compared(own, other),
            "divergence_of_one_in_1000": tail_divergence(own, other),
            "perplexity": perplexity(other, told),
        }
        print(name, of_ways[name], flush=True)
    return {
        "moved_alone_nats": {
            kind: [moved[layer, index] for layer in range(layers)]
            for kind, index in (("keys", KEYS), ("values", VALUES))
        },
        "of_ways": of_ways,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=1024, help="of a window, one a page")
    parser.add_argument("--chosen", type=int, default=2, help="pages on which layers are chosen")
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="the first so many")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/codec_layers.json"))
    arguments = parser.parse_args(words)
    model = resolve_model(arguments.model)
    windows, _ = texts(TextCodec.from_folder(model.path), arguments.tokens, 0, 0)
    verifier = load_verifier(model, backend="torch", dtype="auto")
    report = {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "pages": PAGES,
        "tokens": sum(map(len, windows)),
        "chosen_on": list(PAGES[: arguments.chosen]),
        "tile": TILE,
        "of_pairs": {
            f"{finer}, {coarser}": of_pair(verifier, windows, arguments.chosen, finer, coarser)
            for finer, coarser in PAIRS[: arguments.pairs]
        },
    }
    write_report(arguments.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Calibrates the codecs of keys and values that have to know the model: SQuat and KVQuant.

    python -m scripts.train.calibrate_codecs --out build/codec_calibration.npz

Texts are pages of this repository that `scripts.eval.codec_quality` does not measure on, without
the lines that stand in those as well. The model reads them in windows, once forth and once back:
SQuat wants the directions of its queries, KVQuant the ranges of keys' channels and, by k-means
under Fisher's weights, tables of levels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.codecs.calibration import BITS, LEAST_REACH, MEND, Calibration
from kakeya_fleet.engine.codecs.calibration_file import write_calibration
from kakeya_fleet.engine.codecs.outliers import furthest
from kakeya_fleet.engine.codecs.refused import CalibrationRefused
from kakeya_fleet.engine.codecs.table_codec import from_means, value_ranges, within
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.models.digests import weights_digest
from scripts.bench.machine import ROOT
from scripts.eval.weights_quality import PAGES
from scripts.train.codec_observation import SKIPPED, Observed, observed
from scripts.train.level_tables import Spread, edges_of, levels_of, normed

CALIBRATED_ON = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/doctor.md",
    "docs/install.md",
    "docs/models.md",
    "docs/monitoring.md",
    "docs/promises.md",
)
CALIBRATION = ROOT / "build" / "codec_calibration.npz"
"""Where it is kept: made where it is missing, and no part of the repository."""
WINDOW = 1024
PROMPT = 1024
"""Tokens of a prompt, whose queries the singular values are as of: the authors' are of prompts."""
DIRECTIONS = 60
"""The most of the authors' own."""
OUTLIERS = 0.005
"""Of a channel's keys, at either end."""
NORMED_BITS = 2
"""Tables of so many bits or fewer have their levels moved, as KVQuant does."""
LEAST_LINE = 24
"""Characters of a line that is looked for in the other pages."""


def calibration_texts() -> list[str]:
    """Each page, without lines that stand in a page that is measured on."""
    measured = {line.strip() for page in PAGES for line in (ROOT / page).read_text().splitlines()}
    return [
        "\n".join(
            line
            for line in (ROOT / page).read_text().splitlines()
            if len(line.strip()) < LEAST_LINE or line.strip() not in measured
        )
        for page in CALIBRATED_ON
    ]


def windows_of(texts: Sequence[str], codec: TextCodec, tokens: int) -> list[list[int]]:
    """The beginning of each text, so many tokens. Raises `CalibrationRefused` without any."""
    found = [codec.encode(text)[:tokens] for text in texts]
    whole = [window for window in found if len(window) == tokens]
    if tokens % TILE or tokens <= SKIPPED or not whole:
        raise CalibrationRefused(f"no text has {tokens} tokens, or they are no whole tiles; {MEND}")
    return whole


def directions_of(seen: Observed, layer: int, count: int) -> np.ndarray:
    """Singular vectors times singular values [kv_heads, count, head_dim] of turned queries."""
    queries = seen.queries[layer]
    windows, heads, positions, head_dim = queries.shape
    kv_heads = seen.keys[layer].shape[1]
    firsts = np.tile(SKIPPED + np.arange(0, positions, TILE), windows * heads)
    turned = seen.rotary.turned(np.ascontiguousarray(queries).reshape(-1, TILE, head_dim), firsts)
    of_heads = turned.reshape(windows, kv_heads, -1, head_dim).swapaxes(0, 1)
    found = []
    for each in of_heads.reshape(kv_heads, -1, head_dim).astype(np.float64):
        # The eigenvectors of Q^T Q are Q's right singular vectors.
        squares, vectors = np.linalg.eigh(each.T @ each * (PROMPT / (windows * positions)))
        largest = slice(None, -count - 1, -1)
        found.append((np.sqrt(np.maximum(squares, 0)) * vectors).T[largest])
    return np.stack(found)


def key_spread(seen: Observed, layer: int) -> tuple[np.ndarray, np.ndarray, Spread]:
    """Middles and reaches [kv_heads, head_dim] of channels, and how keys lie in these ranges."""
    keys, weights = seen.keys[layer], seen.key_weights[layer]
    least, most = np.quantile(keys, (OUTLIERS, 1 - OUTLIERS), axis=(0, 2))
    middles = ((least + most) / 2).astype(np.float32)
    reaches = np.maximum((most - least) / 2, LEAST_REACH).astype(np.float32)
    moved = (keys - middles[:, None]) / reaches[:, None]
    # An error in ranges is as many reaches of the numbers themselves.
    return middles, reaches, Spread.of(moved, weights * np.square(reaches[:, None]))


def value_spread(seen: Observed, layer: int) -> Spread:
    """How values lie in the ranges of their positions, those that are no outliers."""
    head_dim = seen.values[layer].shape[-1]
    tiles = np.ascontiguousarray(seen.values[layer]).reshape(-1, TILE, head_dim)
    places = furthest(from_means(tiles))
    ranges = value_ranges(tiles, places)
    moved = within(tiles, ranges).reshape(len(tiles), -1)
    np.put_along_axis(moved, places, np.inf, axis=1)
    reaches = ranges[:, 1, :, None].astype(np.float32)
    weights = seen.value_weights[layer].reshape(tiles.shape) * np.square(reaches)
    return Spread.of(moved.reshape(tiles.shape), weights)


def calibration_of(seen: Observed, model_digest: str, directions: int) -> Calibration:
    """All that is kept of what was seen."""
    layers = range(len(seen.keys))
    keys = [key_spread(seen, layer) for layer in layers]
    spreads = [(spread, value_spread(seen, layer)) for layer, (_, _, spread) in enumerate(keys)]
    levels, edges = {}, {}
    for bits in BITS:
        found = [[levels_of(spread, 2**bits) for spread in both] for both in spreads]
        edges[bits] = np.array([[edges_of(each) for each in both] for both in found], np.float32)
        if bits <= NORMED_BITS:
            found = [
                [normed(spread, each) for spread, each in zip(both, own, strict=True)]
                for both, own in zip(spreads, found, strict=True)
            ]
        levels[bits] = np.array(found, np.float32)
    return Calibration(
        model_digest,
        np.stack([directions_of(seen, layer, directions) for layer in layers]).astype(np.float32),
        np.stack([middles for middles, _, _ in keys]),
        np.stack([reaches for _, reaches, _ in keys]),
        seen.rotary.frequencies,
        edges,
        levels,
    )


def calibrate(model: str, out: Path, tokens: int = WINDOW, directions: int = DIRECTIONS) -> None:
    """Reads the texts by the model and writes the file."""
    folder = resolve_model(model).path
    windows = windows_of(calibration_texts(), TextCodec.from_folder(folder), tokens)
    seen = observed(folder, windows)
    write_calibration(out, calibration_of(seen, weights_digest(folder), directions))


def main(words: Sequence[str] | None = None) -> int:
    """Writes the file and says how large it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=WINDOW, help="of a window, one a page")
    parser.add_argument("--directions", type=int, default=DIRECTIONS, help="of a head's queries")
    parser.add_argument("--out", type=Path, default=CALIBRATION)
    arguments = parser.parse_args(words)
    calibrate(arguments.model, arguments.out, arguments.tokens, arguments.directions)
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

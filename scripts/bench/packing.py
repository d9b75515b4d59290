"""What packing and unpacking take: the tiles of a layer's keys and values, by each codec.

    python -m scripts.bench.packing --out benchmarks/packing.json

1,024 positions of a layer of 8 heads of 128 channels, random with a few large channels, rounded to
bfloat16: milliseconds by the compiled library, with a thread and with one a core, and by the
codecs' own arithmetic in numpy. Unpacked numbers are in new memory: `memory` is what it takes to
have that, and to fill it with zeros. All sides take turns; medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.packing import (
    compiled_pack,
    compiled_unpack,
)
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.engine.codecs.tile import TILE, Codec, Floats
from kakeya_fleet.fleet.placement.codec_ladder import LADDER
from scripts.bench.machine import command, machine, write_report

HEADS, HEAD_DIM, POSITIONS = 8, 128, 1024
LARGE_CHANNEL = 17
"""Each so many channels one is large, as in keys."""


def tiles(heads: int, head_dim: int, positions: int, seed: int) -> Floats:
    """Tiles [n, 64, head_dim] of all heads, of numbers that bfloat16 has."""
    numbers = np.random.default_rng(seed).standard_normal(
        (heads * positions // TILE, TILE, head_dim), dtype=np.float32
    )
    numbers[:, :, ::LARGE_CHANNEL] *= 12
    return (numbers.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def sides(name: str, keys: Floats, values: Floats) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured of a codec, by name."""
    codec, head_dim = codec_named(name), keys.shape[2]
    both: Sequence[tuple[Codec, Floats]] = ((codec.keys, keys), (codec.values, values))
    packed = [(each, each.encode(numbers)) for each, numbers in both]
    # As they lie in a cache: the upper half of a float32's bits is its bfloat16.
    halves = [
        (each, np.ascontiguousarray((numbers.view(np.uint32) >> 16).astype(np.uint16)))
        for each, numbers in both
    ]

    def unpack() -> None:
        for each, rows in packed:
            if compiled_unpack(each, rows, head_dim, torch.bfloat16) is None:
                raise SystemExit(f"the compiled library is not here, or does not know {name}")

    def touch() -> None:
        for numbers in (keys, values):
            torch.empty(numbers.shape, dtype=torch.bfloat16).fill_(0)

    yield "unpack", unpack
    yield "memory", touch
    yield "pack", lambda: [compiled_pack(each, numbers) for each, numbers in halves]
    yield "unpack_numpy", lambda: [each.decode(rows, head_dim) for each, rows in packed]
    yield "pack_numpy", lambda: [each.encode(numbers) for each, numbers in both]


def measured(names: Sequence[str], rounds: int, shape: tuple[int, int, int]) -> dict[str, object]:
    """Medians in milliseconds, by codec and side."""
    keys, values = tiles(*shape, seed=0), tiles(*shape, seed=1)
    calls = {(name, side): call for name in names for side, call in sides(name, keys, values)}
    took: dict[tuple[str, str], list[float]] = {key: [] for key in calls}
    # The first round warms up.
    for number in range(rounds + 1):
        for key, call in calls.items():
            began = time.perf_counter()
            call()
            if number:
                took[key].append(1e3 * (time.perf_counter() - began))
    return {
        name: {side: statistics.median(ms) for (of, side), ms in took.items() if of == name}
        for name in names
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measures with a thread and with one a core, and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--positions", type=int, default=POSITIONS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/packing.json"))
    arguments = parser.parse_args(words)
    shape = (HEADS, HEAD_DIM, arguments.positions)
    of_threads, most = {}, torch.get_num_threads()
    for threads in sorted({1, most}):
        torch.set_num_threads(threads)
        of_threads[str(threads)] = measured(LADDER, arguments.rounds, shape)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "positions": arguments.positions,
        "rounds": arguments.rounds,
        "milliseconds_of_threads": of_threads,
    }
    write_report(arguments.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

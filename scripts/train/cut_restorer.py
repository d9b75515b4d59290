"""A learned map of fewer numbers a position, cut from one that is trained.

    python -m scripts.train.cut_restorer --target MODEL --drafter FOLDER --rows ROWS \\
        --restorer FOLDER/restorer --rank 256 --out SMALLER

Of all maps of a rank the nearest one on the verifier's own text, each layer's keys and values
counting alike: the singular value decomposition of what the map makes of the drafter's context
vectors (Eckart and Young, 1936). Of a position `rank` numbers then travel to the archive.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    load_projection,
    save_projection,
)
from scripts.train.drafter_start import context_regression
from scripts.train.pair_export import load_drafter
from scripts.train.pair_run import first_rows
from scripts.train.regression import Regression
from scripts.train.rows import read_rows


def of_rank(projection: Projection, rank: int) -> Projection:
    """An untrained map of a rank, 0 for a full matrix, for the same pair."""
    made = Projection(dataclasses.replace(projection.config, rank=rank))
    for name, buffer in projection.named_buffers():
        made.get_buffer(name).copy_(buffer)
    return made


def cut_map(full: Projection, seen: Regression, rank: int) -> Projection:
    """The map of a `rank` that is nearest to `full`, which has none, on the inputs `seen`.

    Raises ValueError for a map that has a rank already, and for one that is no smaller.
    """
    if full.config.rank:
        raise ValueError(f"the map has rank {full.config.rank} already: cut the one that has none")
    if not 0 < rank < full.config.inputs:
        raise ValueError(f"rank {rank} is not between 0 and the map's {full.config.inputs} inputs")
    smaller = of_rank(full, rank)
    down, up = seen.cut(full.up.weight.double().T, len(full.config.layers), rank)
    assert smaller.down is not None
    with torch.no_grad():
        smaller.down.weight.copy_(down)
        smaller.up.weight.copy_(up)
    return smaller


def main(arguments: list[str] | None = None) -> None:
    """Write the smaller map, in bfloat16."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("target", "drafter", "rows", "restorer", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    options = parser.parse_args(arguments)
    target = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.float32).eval()
    drafter = load_drafter(options.drafter)
    rows = first_rows(read_rows(options.rows), torch.device("cpu"))
    seen = context_regression(drafter, target, rows)
    smaller = cut_map(load_projection(options.restorer), seen, options.rank)
    save_projection(smaller, options.out, torch.bfloat16)


if __name__ == "__main__":
    main()

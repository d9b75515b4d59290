"""Learned maps of several sizes for a drafter that is trained, fitted without a gradient.

    python -m scripts.train.fit_restorer --target MODEL --drafter FOLDER \\
        --prompts PROMPTS.npz --ranks 576 256 128 --out OUT

Reduced-rank regression of the verifier's keys and values on the drafter's context vectors, over
texts that `scripts.train.prompts` and `scripts.train.asked` wrote, one behind the other in rows of
a length that sessions have. OUT/fitted-RANK is the drafter with the map in its `restorer/`, whose
`fit.json` says on how much it was fitted, and by how much it misses keys and values of texts that
are held out. A rank of the vectors' own width is the whole matrix.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM

from kakeya_fleet.engine.backends.torch_backend.dflash import load_encoder
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    Source,
    save_projection,
)
from scripts.train.answers import Prompts
from scripts.train.cut_restorer import of_rank
from scripts.train.drafter_start import context_regression, start_projection
from scripts.train.pair_export import CONFIG, RESTORER, WEIGHTS, load_drafter
from scripts.train.pair_run import new_projection
from scripts.train.regression import Regression

FIT = "fit.json"


def packed_rows(texts: Sequence[np.ndarray], length: int, tokens: int) -> Iterator[torch.Tensor]:
    """Rows of `length` ids, [length], of texts one behind the other: at most `tokens` together."""
    ids = np.concatenate([np.zeros(0, np.int64), *texts])[:tokens]
    for first in range(0, len(ids) - length + 1, length):
        yield torch.from_numpy(ids[first : first + length])


def beside_drafter(drafter: Path, folder: Path) -> Path:
    """A map's place in a `folder` that has what else the drafter's has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (CONFIG, WEIGHTS):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to((drafter / name).resolve())
    return folder / RESTORER


def missed(projection: Projection, held_out: Regression) -> dict[str, float]:
    """Squared error over squared norm of held-out keys and values, the mean over layers."""
    up = projection.up.weight.double().T
    down = projection.down
    full = up if down is None else down.weight.double().T @ up
    layers = len(projection.config.layers)
    errors = held_out.error_of(full).view(layers, 2, -1).mean(-1)
    squares = held_out.output_squares.view(layers, 2, -1).mean(-1)
    keys, values = (errors / squares).mean(0).tolist()
    return {"keys": round(keys, 5), "values": round(values, 5)}


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("target", "drafter", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, nargs="+", required=True)
    parser.add_argument("--ranks", type=int, nargs="+", required=True, help="numbers a position")
    parser.add_argument("--tokens", type=int, default=200_000, help="that are fitted on")
    parser.add_argument("--held-out-tokens", type=int, default=20_000)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the texts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    options.source, options.rank = Source.FEATURES, 0
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and write the maps in bfloat16."""
    options = parse_options(arguments)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    target = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.float32)
    target = target.to(device).eval().requires_grad_(requires_grad=False)
    drafter = load_drafter(options.drafter).to(device)
    width = drafter.shape.hidden
    if not all(0 < rank <= width for rank in options.ranks):
        raise ValueError(f"ranks {options.ranks}: each is from 1 to the vectors' {width} numbers")
    prompts = Prompts.read(*options.prompts)
    order = np.random.Generator(np.random.Philox(key=options.seed)).permutation(len(prompts.rows))

    def fitted_on(tokens: int, *, held_out: bool) -> Regression:
        texts = [prompts.rows[at] for at in order if prompts.held_out[at] == held_out]
        rows = list(packed_rows(texts, options.length, tokens))
        told = track(rows, description="held out" if held_out else "fitted on")
        return context_regression(drafter, target, (row.to(device) for row in told))

    found = fitted_on(options.tokens, held_out=False)
    held_out = fitted_on(options.held_out_tokens, held_out=True)
    whole = new_projection(options, target, drafter)
    digest = load_encoder(options.drafter).spec.digest
    whole.config = dataclasses.replace(whole.config, encoder_digest=digest)
    for rank in options.ranks:
        projection = of_rank(whole, rank if rank < width else 0).to(device)
        start_projection(projection, found)
        folder = beside_drafter(options.drafter, options.out / f"fitted-{rank}")
        save_projection(projection, folder, torch.bfloat16)
        figures = {
            "tokens": found.count,
            "held_out_tokens": held_out.count,
            "length": options.length,
            "seed": options.seed,
            "missed": missed(projection, held_out),
        }
        (folder / FIT).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        print(rank, json.dumps(figures))


if __name__ == "__main__":
    main()

"""Which of a verifier's layers tell a drafter most, by linear guesses of a block's places.

    python -m scripts.train.prompts --target MODEL --out PROMPTS.npz
    python -m scripts.train.answers --target MODEL --prompts PROMPTS.npz --out ROWS
    python -m scripts.eval.drafter_taps --target MODEL --rows ROWS

To train a drafter for each choice of layers takes hours. A probe takes minutes: ridge regression,
from what some layers gave at the last position that was read and the embedding of the token behind
it, to the verifier's last normed states from there on, of which the verifier's head makes guesses.
A drafter also sees what came before, and is not linear: a probe ranks what a position tells. Layers
are chosen one after the other, by what is missed of the states; guesses are of rows that are held
out, behind the verifier's own tokens.

Source: Alain and Bengio, "Understanding intermediate layers using linear classifier probes" (2016).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from scripts.bench.machine import command, machine, write_report
from scripts.train.regression import Regression
from scripts.train.rows import RowBatch, read_rows

LAYERS = (1, 3, 5, 8, 10, 12, 15, 17, 20, 22, 24, 26, 28)
SETS = ("1,8,15,22,28", "1,3,5,8,10", "20,22,24,26,28", "1,15,28", "28")
"""The layers of the shipped drafter first."""
MOST_CHOSEN = 5
RIDGE = 1e-3
"""Of the mean square of each input."""
TOGETHER = 2048
"""Positions whose products are added at a time."""


@dataclass(frozen=True)
class Positions:
    """What was seen at n positions, and what comes behind them."""

    inputs: Tensor
    """Outputs of each layer, then an embedding, [n, (layers + 1) * hidden]."""
    states: Tensor
    """The verifier's last normed ones at the next places, [n, places * hidden]."""
    labels: Tensor
    """The tokens behind those, [n, places]."""


@torch.inference_mode()
def seen(
    model: PreTrainedModel, rows: RowBatch, index: Iterable[int], layers: Sequence[int], places: int
) -> Iterator[Positions]:
    """Of the answers of rows, row by row; of those that are long enough."""
    for row in index:
        length, prompt = int(rows.lengths[row]), int(rows.prompts[row])
        ids = torch.from_numpy(rows.tokens[row, :length].astype(np.int64))
        # The token at `at` is known, and what layers gave one before it.
        at = torch.arange(prompt, length - places)
        if not len(at):
            continue
        states = model(ids[None], output_hidden_states=True, logits_to_keep=1).hidden_states
        tapped = [states[layer + 1][0, at - 1] for layer in layers]
        coming = at[:, None] + torch.arange(places)
        yield Positions(
            torch.cat([*tapped, states[0][0, at]], dim=1),
            states[-1][0, coming].flatten(1),
            ids[coming + 1],
        )


def joined(parts: Sequence[Positions]) -> Positions:
    """One behind the other."""
    return Positions(
        torch.cat([each.inputs for each in parts]),
        torch.cat([each.states for each in parts]),
        torch.cat([each.labels for each in parts]),
    )


class Probe:
    """Maps from any of the layers, fitted on all positions that were added."""

    def __init__(self, layers: Sequence[int], hidden: int, places: int) -> None:
        self._layers = list(layers)
        self._hidden = hidden
        inputs = (len(layers) + 1) * hidden
        self.seen = Regression(inputs, places * hidden, ridge=RIDGE)

    def add(self, parts: Sequence[Positions]) -> None:
        """Takes them in."""
        together = joined(parts)
        self.seen.add(together.inputs, together.states)

    def columns(self, layers: Sequence[int]) -> Tensor:
        """Those of some layers, and of the embedding."""
        blocks = [*(self._layers.index(layer) for layer in layers), len(self._layers)]
        within = torch.arange(self._hidden)
        return torch.cat([block * self._hidden + within for block in blocks])

    def fitted(self, layers: Sequence[int]) -> tuple[Tensor, float]:
        """The map from their columns, and what it misses of the states: of their squares."""
        part = self.seen.of(self.columns(layers))
        full = part.fitted()
        return full.float(), float(part.error_of(full).sum() / part.output_squares.sum())


def told(
    probe: Probe, layers: Sequence[int], held_out: Positions, head: Tensor
) -> dict[str, object]:
    """How often each place's guess is right, and what a forward commits with all of them."""
    full, missed = probe.fitted(layers)
    made = held_out.inputs[:, probe.columns(layers)] @ full
    places = held_out.labels.shape[1]
    by_place = made.view(len(made), places, -1)
    guesses = torch.cat(
        [
            (by_place[first : first + TOGETHER] @ head.T).argmax(-1)
            for first in range(0, len(made), TOGETHER)
        ]
    )
    right = (guesses == held_out.labels).float()
    return {
        "layers": list(layers),
        "missed": missed,
        "right": right.mean(0).tolist(),
        "tokens_a_forward": 1.0 + float(right.cumprod(1).sum(1).mean()),
    }


def chosen(probe: Probe, layers: Sequence[int]) -> list[list[int]]:
    """The layers that miss least, one more each time."""
    found: list[list[int]] = []
    taken: list[int] = []
    for _ in range(min(MOST_CHOSEN, len(layers))):
        left = [layer for layer in layers if layer not in taken]
        best = min(left, key=lambda layer: probe.fitted(sorted([*taken, layer]))[1])
        taken = sorted([*taken, best])
        found.append(taken)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Fits the probe and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("target", "rows"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--layers", type=int, nargs="+", default=LAYERS, help="to choose from")
    parser.add_argument("--sets", nargs="+", default=SETS, help="beside those that are chosen")
    parser.add_argument("--places", type=int, default=4, help="of a block")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/drafter_taps.json"))
    asked = parser.parse_args(words)
    model = AutoModelForCausalLM.from_pretrained(asked.target, dtype=torch.float32).eval()
    rows = read_rows(asked.rows)
    probe = Probe(asked.layers, model.config.hidden_size, asked.places)
    sides = [np.flatnonzero(side).tolist() for side in (~rows.held_out, rows.held_out)]
    waiting: list[Positions] = []
    for each in seen(model, rows, track(sides[0]), asked.layers, asked.places):
        waiting.append(each)
        if sum(len(part.inputs) for part in waiting) >= TOGETHER:
            probe.add(waiting)
            waiting = []
    if waiting:
        probe.add(waiting)
    held_out = joined(list(seen(model, rows, sides[1], asked.layers, asked.places)))
    head = model.get_output_embeddings().weight.detach()
    named = [[int(layer) for layer in each.split(",")] for each in asked.sets]
    sets = [told(probe, each, held_out, head) for each in named]
    best = [told(probe, each, held_out, head) for each in chosen(probe, asked.layers)]
    report = {
        # Where these lie is nobody else's matter.
        "command": command(__file__)
        .replace(str(asked.target), "MODEL")
        .replace(str(asked.rows), "ROWS"),
        "machine": machine(),
        "positions": probe.seen.count,
        "held_out_positions": len(held_out.inputs),
        "sets": sets,
        "chosen": best,
    }
    write_report(asked.out, report)
    for line in (*sets, *best):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What drafters of one verifier commit, and what their blocks take: DFlash 1 beside DFlash 2.

    python -m scripts.eval.drafter_versions --target MODEL --rows ROWS --drafters FOLDER FOLDER

Tokens a verify forward would commit of answers that are held out (`scripts.train.answers` or
`scripts.train.rows` wrote them), behind the verifier's own tokens, at the same places for every
drafter. Then milliseconds of a whole block as it is served, and of the forward that verifies it,
all in turns in this process; and what both give together, tokens a second of a drafter and a
verifier that wait for each other, without messages.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, PreTrainedModel

from kakeya_fleet.engine.backends import load_dflash, load_verifier
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.drafted_block import milliseconds
from scripts.bench.machine import command, machine, write_report
from scripts.eval.teacher_forced import logits_of, read
from scripts.train.drafter_model import Drafter
from scripts.train.pair_export import load_drafter
from scripts.train.pair_losses import draft_loss, draw_blocks, read_written
from scripts.train.rows import RowBatch, read_rows

CONTEXT = 256
BLOCKS = 16
"""Of a row, at places that are drawn."""
SIDES = {"greedy": False, "at a temperature": True}


@torch.no_grad()
def accepted(
    model: PreTrainedModel, drafters: Sequence[Drafter], rows: RowBatch, index: Sequence[int]
) -> list[dict[str, float]]:
    """Of rows `index`, for each drafter: tokens a forward, and the share of right first guesses."""
    generator = torch.Generator().manual_seed(0)
    found: list[list[tuple[float, float]]] = [[] for _ in drafters]
    for row in track(index):
        tokens = torch.from_numpy(rows.tokens[row, : rows.lengths[row]].astype(np.int64))[None]
        prompt, length = (torch.tensor([int(each[row])]) for each in (rows.prompts, rows.lengths))
        size = max(drafter.shape.block_size for drafter in drafters)
        blocks = draw_blocks(generator, prompt, length, size, BLOCKS)
        for drafter, own in zip(drafters, found, strict=True):
            size = drafter.shape.block_size
            with torch.autocast("cpu", torch.bfloat16):
                seen = read_written(model, tokens, drafter.shape.taps)
                figures = draft_loss(
                    model, drafter, tokens, seen, blocks, size=size, late_weight=6.0
                )
            own.append((figures.accepted.item(), figures.first.item()))
    means = [np.mean(own, axis=0).tolist() for own in found]
    return [{"tokens_a_forward": mean[0], "first_guesses": mean[1]} for mean in means]


class Blocks:
    """One drafter's whole block behind a context, and the forward that verifies it."""

    def __init__(self, folder: Path, target: ModelFolder, verifier: Verifier, dtype: str) -> None:
        proposer = load_dflash(resolve(str(folder)), target, dtype=dtype)
        if not isinstance(proposer, DFlashProposer):
            raise SystemExit(f"{folder} is no DFlash drafter")
        rng = np.random.default_rng(0)
        tokens = rng.integers(0, verifier.info.vocabulary_size, CONTEXT + 1).tolist()
        self._drafting = proposer.open(tokens)
        width = proposer.encoder.spec.width
        self._drafting.take_features(0, rng.standard_normal((CONTEXT, width), np.float32))
        self._block = tokens[: proposer.info.block_size]
        self._verifier = verifier
        self._cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=2 * CONTEXT))
        read(verifier, self._cache, tokens[:CONTEXT])

    def draft(self) -> object:
        """What the drafter does."""
        return self._drafting.propose((), len(self._block) - 1, 0)

    def verify(self) -> None:
        """What the verifier does."""
        logits_of(self._verifier, self._cache, self._block)
        self._cache.truncate(CONTEXT)


def told(folder: Path, accepted_by: dict[str, Any], times: dict[str, float]) -> dict[str, Any]:
    """For the report."""
    drafter = load_drafter(folder)
    together = (times["draft"] + times["verify"]) / 1e3
    return {
        "drafter": folder.name,
        "version": 1 if drafter.shape.version_2 is None else 2,
        "parameters": sum(each.numel() for each in drafter.parameters()),
        "block_size": drafter.shape.block_size,
        "accepted": accepted_by,
        "block_milliseconds": times["draft"],
        "verify_milliseconds": times["verify"],
        "tokens_per_second": {
            side: figures["tokens_a_forward"] / together for side, figures in accepted_by.items()
        },
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--drafters", type=Path, nargs="+", required=True)
    parser.add_argument("--most", type=int, default=200, help="held-out rows of each temperature")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--dtype", default="bfloat16", help="that is served")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/drafter_versions.json"))
    asked = parser.parse_args(words)
    rows = read_rows(asked.rows)
    model = AutoModelForCausalLM.from_pretrained(asked.target, dtype=torch.float32).eval()
    drafters = [load_drafter(folder).eval() for folder in asked.drafters]
    by_side, counts = {}, {}
    for side, is_warm in SIDES.items():
        index = np.flatnonzero(rows.held_out & ((rows.temperatures > 0) == is_warm))
        index = index[: asked.most]
        by_side[side], counts[side] = accepted(model, drafters, rows, index.tolist()), len(index)
    target = resolve(str(asked.target))
    verifier = load_verifier(target, backend="torch", dtype=asked.dtype)
    settle(verifier)
    blocks = [Blocks(folder, target, verifier, asked.dtype) for folder in asked.drafters]
    sides = {f"draft {at}": block.draft for at, block in enumerate(blocks)}
    sides |= {f"verify {at}": block.verify for at, block in enumerate(blocks)}
    times = milliseconds(sides, asked.rounds)
    found = [
        told(
            folder,
            {side: figures[at] for side, figures in by_side.items()},
            {what: times[f"{what} {at}"]["median"] for what in ("draft", "verify")},
        )
        for at, folder in enumerate(asked.drafters)
    ]
    line = command(__file__).replace(str(asked.target), "MODEL").replace(str(asked.rows), "ROWS")
    for folder in asked.drafters:
        line = line.replace(str(folder), folder.name)
    report = {
        "command": line,
        "machine": machine(),
        "rows": counts,
        "context_tokens": CONTEXT,
        "drafters": found,
    }
    write_report(asked.out, report)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

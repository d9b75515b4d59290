"""What drafters of one verifier commit, and what their blocks take: DFlash 1 beside DFlash 2.

    python -m scripts.eval.drafter_versions --of smollm2 ROWS DRAFTER DRAFTER \\
        --of tiny OTHER_ROWS ITS_DRAFTER

The report's drafters are of `scripts.train.rows --target engine/shipped/tiny --batches 6` and
`scripts.train.pair --train drafter --steps 3000`, with `--version 1`, `--version 2` and
`--version 1 --layers 3`.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from transformers import AutoModelForCausalLM, PreTrainedModel

from kakeya_fleet.engine.backends import load_dflash, load_verifier
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.drafted_block import milliseconds
from scripts.bench.machine import command, machine, write_report
from scripts.eval.teacher_forced import logits_of, read
from scripts.train.drafter_model import Drafter
from scripts.train.pair_export import MANIFEST, load_drafter
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
        largest = max(drafter.shape.block_size for drafter in drafters)
        blocks = draw_blocks(generator, prompt, length, largest, BLOCKS)
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

    @property
    def size(self) -> int:
        """Tokens of the block, with the one that it begins behind."""
        return len(self._block)

    def draft(self) -> object:
        """What the drafter does."""
        return self._drafting.propose((), len(self._block) - 1, 0)

    def verify(self) -> None:
        """What the verifier does."""
        logits_of(self._verifier, self._cache, self._block)
        self._cache.truncate(CONTEXT)


@dataclass(frozen=True)
class Group:
    """A verifier, answers of it, and drafters for it."""

    target: str
    rows: Path
    drafters: tuple[Path, ...]

    def measured(self, most: int, rounds: int, dtype: str) -> list[dict[str, Any]]:
        """What a report says of each drafter."""
        target = resolve_model(self.target, dtype=dtype)
        model = AutoModelForCausalLM.from_pretrained(target.path, dtype=torch.float32).eval()
        rows = read_rows(self.rows)
        drafters = [load_drafter(folder).eval() for folder in self.drafters]
        by_side = {}
        for side, is_warm in SIDES.items():
            index = np.flatnonzero(rows.held_out & ((rows.temperatures > 0) == is_warm))[:most]
            by_side[side] = accepted(model, drafters, rows, index.tolist())
        verifier = load_verifier(target, backend="torch", dtype=dtype)
        settle(verifier)
        blocks = [Blocks(folder, target, verifier, dtype) for folder in self.drafters]
        timed = {f"draft {at}": block.draft for at, block in enumerate(blocks)}
        # One forward for all blocks of a size: it is the same for each.
        timed |= {f"verify {block.size}": block.verify for block in blocks}
        times = milliseconds(timed, rounds)
        found = []
        for at, drafter in enumerate(drafters):
            draft = times[f"draft {at}"]["median"]
            verify = times[f"verify {blocks[at].size}"]["median"]
            own = {side: figures[at] for side, figures in by_side.items()}
            speeds = {
                side: 1e3 * each["tokens_a_forward"] / (draft + verify)
                for side, each in own.items()
            }
            found.append(
                {
                    "target": self.target if "/" not in self.target else target.path.name,
                    "drafter": self.drafters[at].name,
                    "version": 1 if drafter.shape.version_2 is None else 2,
                    "layers": drafter.shape.layers,
                    "parameters": sum(each.numel() for each in drafter.parameters()),
                    "block_size": drafter.shape.block_size,
                    "rows": int((~rows.held_out).sum()),
                    "steps": json.loads((self.drafters[at] / MANIFEST).read_bytes())["training"][
                        "steps"
                    ],
                    "accepted": own,
                    "block_milliseconds": draft,
                    "verify_milliseconds": verify,
                    "tokens_per_second": speeds,
                }
            )
        return found

    def without_folders(self, line: str) -> str:
        """The command line without where rows and drafters lie on this machine."""
        for folder in (self.rows, *self.drafters):
            line = line.replace(str(folder), folder.name)
        return line


def main(words: Sequence[str] | None = None) -> int:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--of", nargs="+", action="append", required=True, metavar="NAME")
    parser.add_argument("--most", type=int, default=200, help="held-out rows of each temperature")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--dtype", default="auto", help="that is served")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/drafter_versions.json"))
    asked = parser.parse_args(words)
    groups = []
    for target, *paths in asked.of:
        if len(paths) < 2:
            parser.error(f"--of {target}: a folder of rows and one of a drafter belong to it")
        rows, *drafters = map(Path, paths)
        groups.append(Group(target, rows, tuple(drafters)))
    found = [
        each for group in groups for each in group.measured(asked.most, asked.rounds, asked.dtype)
    ]
    line = command(__file__)
    for group in groups:
        line = group.without_folders(line)
    report = {
        "command": line,
        "machine": machine(),
        "context_tokens": CONTEXT,
        "drafters": found,
    }
    write_report(asked.out, report)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Which families are exact on which back end: checked, on small random checkpoints.

    python -m scripts.eval.families_table --out benchmarks/families.json

For each family, back end and dtype the model is loaded as a node loads it, then
`scripts.eval.families_checks` runs. Prints the table, and writes it as Markdown
beside the JSON.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kakeya_fleet.engine.backends import BACKENDS, load_verifier
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve, vocabulary_size
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.machine import command, machine, write_report
from scripts.eval.families_checks import (
    CHECKS,
    GREEDY_TOKENS,
    LONG,
    SINK,
    WINDOW,
    greedy_equals,
    reference_greedy,
)
from scripts.train.tiny_families import GEMMA4_26B, SLIDING_WINDOW, save_random_checkpoint

FAMILIES: dict[str, tuple[str, dict[str, object]]] = {
    "Llama 3": (
        "LlamaForCausalLM",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            }
        },
    ),
    "Mistral": ("MistralForCausalLM", {"sliding_window": SLIDING_WINDOW}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    "Qwen3": ("Qwen3ForCausalLM", {}),
    "Phi 3": ("Phi3ForCausalLM", {"sliding_window": SLIDING_WINDOW}),
    "OLMo 2": ("Olmo2ForCausalLM", {}),
    "Gemma 3": ("Gemma3ForCausalLM", {}),
    "Gemma 4": ("Gemma4ForCausalLM", {}),
    "Qwen3 MoE": ("Qwen3MoeForCausalLM", {}),
    "Mixtral": ("MixtralForCausalLM", {}),
    "Gemma 4, experts": (GEMMA4_26B, {}),
    "gpt-oss": ("GptOssForCausalLM", {}),
    "Qwen3.5": ("Qwen3_5ForCausalLM", {}),
}
"""Architecture and what its config has besides `scripts.train.tiny_families`' own."""
SHIPPED = "tiny, shipped (Qwen3)"
DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
GREEDY_COLUMN = "greedy"
SELF_CHECK = "self_check"
COLUMNS = {
    GREEDY_COLUMN: "greedy equal to transformers",
    "speculation": "exact under speculation past the window",
    "chunking": "exact under chunking",
    "rollback": "rollback",
    "fork": "fork",
    SELF_CHECK: "self-check at load",
}


@dataclass(slots=True)
class Row:
    """What was found of one family on one back end: by column, by dtype."""

    family: str
    backend: str
    found: dict[str, dict[str, bool]] = field(default_factory=dict)
    row_counts: dict[str, list[int]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, column: str, dtype: str, held: bool) -> None:  # noqa: FBT001 - the finding
        """One finding."""
        self.found.setdefault(column, {})[dtype] = held

    def cell(self, column: str) -> str:
        """`yes`, `no`, or the dtypes in which it holds."""
        found = self.found.get(column, {})
        if not found:
            return ""
        held = [DTYPES[dtype] for dtype, holds in found.items() if holds]
        if len(held) == len(found):
            return "yes"
        return f"{', '.join(held)} only" if held else "no"

    def record(self) -> dict[str, object]:
        """For JSON."""
        return {
            "family": self.family,
            "backend": self.backend,
            "found": self.found,
            "row_counts": self.row_counts,
            "refused": self.refused,
        }


def markdown(rows: Sequence[Row]) -> str:
    """The table; a family that a back end refuses in every dtype has the reason as its row."""
    lines = [
        "| family | back end | " + " | ".join(COLUMNS.values()) + " |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for row in rows:
        if row.found:
            cells = [row.cell(column) for column in COLUMNS]
        else:
            reason = next(iter(row.refused.values()), "")
            cells = [f"refused: {reason}", *[""] * (len(COLUMNS) - 1)]
        lines.append(f"| {row.family} | {row.backend} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def check(row: Row, folder: Path, dtype: str, reference: Sequence[int]) -> None:
    """Fills in what `row` says of one dtype."""
    try:
        verifier = load_verifier(ModelFolder(folder, folder.name), backend=row.backend, dtype=dtype)
    except ModelUnusable as error:
        row.refused[dtype] = str(error)
        return
    settled = settle(verifier)
    row.add(SELF_CHECK, dtype, settled.exact)
    row.row_counts[dtype] = list(settled.row_counts)
    if dtype == "float32":
        row.add(GREEDY_COLUMN, dtype, greedy_equals(verifier, reference))
    for column, holds in CHECKS.items():
        row.add(column, dtype, holds(verifier))


def random_model(family: str, parent: Path) -> Path:
    """A folder below `parent` with a small random model of `family`."""
    architecture, config = FAMILIES[family]
    folder = parent / architecture
    save_random_checkpoint(folder, architecture, seed=0, shards=False, **config)
    return folder


def measure(families: Sequence[str], backends: Sequence[str], parent: Path) -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    for family in families:
        folder = resolve("tiny").path if family == SHIPPED else random_model(family, parent)
        reference = reference_greedy(folder, vocabulary_size(folder))
        for backend in backends:
            row = Row(family, backend)
            for dtype in DTYPES:
                check(row, folder, dtype, reference)
            rows.append(row)
            shown = row.refused or {column: row.cell(column) for column in COLUMNS}
            print(f"{family} on {backend}: {shown}", file=sys.stderr)
    return rows


def report(rows: Sequence[Row]) -> Mapping[str, object]:
    """For JSON."""
    return {
        "command": command(__file__),
        "machine": machine(),
        "checkpoints": "small and random, but the shipped one",
        "greedy_tokens": GREEDY_TOKENS,
        "sink": SINK,
        "window": WINDOW,
        "history_tokens": LONG,
        "columns": COLUMNS,
        "rows": [row.record() for row in rows],
    }


def main() -> None:
    """Checks, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = [*FAMILIES, SHIPPED]
    parser.add_argument("--families", nargs="+", choices=known, default=known)
    parser.add_argument("--backends", nargs="+", choices=list(BACKENDS), default=list(BACKENDS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("benchmarks/families.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory(prefix="kakeya-families-") as folder:
        rows = measure(arguments.families, arguments.backends, Path(folder))
    write_report(arguments.out, report(rows))
    arguments.out.with_suffix(".md").write_text(markdown(rows))
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()

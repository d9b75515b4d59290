"""What a `full` session costs whose keys and values are packed in the verifier's own memory.

    python -m scripts.bench.packed_full --out benchmarks/packed_full.json

In one process, on the compiled decoder: the published model as far as its positions go, and a
random one of its shape with more. Each round takes every length of context and every kind in turn,
so that all see the same noise of the machine: a cache is filled with random keys and values, and
so many tokens are decoded behind them, one a forward. Told are the milliseconds of a step, the
bytes of the cache's tensors, and the seconds in which a prompt is read. Medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kakeya.v1 import placement_pb2
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.node.planning.kv_quality import CODECS
from scripts.bench.decode_models import checkpoint_folder, random_checkpoint
from scripts.bench.machine import command, machine, write_report

DTYPE = "bfloat16"
FULL = "full"
LONGER = 131_072
"""Positions of the random model."""
SHAPE = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49_152,
    "max_position_embeddings": LONGER,
}
"""The published model's, of another one's family."""
CHUNK = 64


@dataclass(slots=True)
class Cell:
    """What one kind took behind one length of context."""

    step_ms: list[float] = field(default_factory=list)
    prompt_seconds: list[float] = field(default_factory=list)
    kv_bytes: int = 0

    def told(self) -> dict[str, Any]:
        """For the report."""
        found: dict[str, Any] = {
            "step_ms": statistics.median(self.step_ms),
            "kv_bytes": self.kv_bytes,
        }
        if self.prompt_seconds:
            found["prompt_seconds"] = statistics.median(self.prompt_seconds)
        return found


def kinds() -> dict[str, str]:
    """The codecs by kind, none for what is not packed."""
    packed = {placement_pb2.KV_QUALITY_HIGH: "high", placement_pb2.KV_QUALITY_ECONOMY: "economy"}
    return {FULL: ""} | {name: CODECS[number] for number, name in packed.items()}


def spec_of(codec: str, capacity: int) -> CacheSpec:
    """A cache that grows; packed where there is a codec, as sessions are."""
    if not codec:
        return CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity, grows=True)
    return CacheSpec(
        CacheKind.PACKED, capacity=capacity, sink=TILE, window=TILE, codec=codec, grows=True
    )


def measure(
    verifier: Verifier, codec: str, context: int, steps: int, cell: Cell, *, prompt: bool
) -> None:
    """One round of one kind into its cell."""
    cache = verifier.allocate(spec_of(codec, verifier.info.context_length))
    if prompt:
        tokens = [(31 * index) % 1000 for index in range(context)]
        began = time.perf_counter()
        for first in range(0, context, CHUNK):
            verifier.forward(cache, tokens[first : first + CHUNK], want_logits=False)
        cell.prompt_seconds.append(time.perf_counter() - began)
    else:
        cache.fill(context, seed=1)
    taken = []
    for token in range(steps + 1):
        began = time.perf_counter()
        verifier.forward(cache, [token], want_logits=True)
        taken.append(1000 * (time.perf_counter() - began))
    # The first finds what was filled in no cache of the processor.
    cell.step_ms.append(statistics.median(taken[1:]))
    cell.kv_bytes = cache.memory_bytes
    cache.release()


def cells_of(
    verifier: Verifier, contexts: Sequence[int], arguments: argparse.Namespace
) -> dict[int, dict[str, Cell]]:
    """All of one model's."""
    cells = {context: {kind: Cell() for kind in kinds()} for context in contexts}
    for turn in range(arguments.rounds):
        for context in contexts:
            for kind, codec in kinds().items():
                cell = cells[context][kind]
                reads = context <= arguments.prompt
                measure(verifier, codec, context, arguments.steps, cell, prompt=reads)
                print(f"round {turn + 1}, {context:,} positions, {kind}: {cell.step_ms[-1]:.1f} ms")
    return cells


def report(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both models' cells."""
    published = load_verifier(resolve_model(arguments.model), dtype=DTYPE)
    most = published.info.context_length - arguments.steps - 1
    own = [context for context in arguments.contexts if context <= most]
    cells = cells_of(published, own, arguments)
    longer = [context for context in arguments.contexts if context not in own]
    if longer:
        del published
        with checkpoint_folder(arguments.checkpoints) as parent:
            folder = random_checkpoint("Llama-3.2-1B", DTYPE, parent, **SHAPE)
            random = load_verifier(ModelFolder(folder, "random"), dtype=DTYPE)
            cells |= cells_of(random, longer, arguments)
    return {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "random_model": longer,
        "dtype": DTYPE,
        "steps": arguments.steps,
        "rounds": arguments.rounds,
        "by_context": {
            str(context): {kind: cell.told() for kind, cell in of_kind.items()}
            for context, of_kind in cells.items()
        },
    }


def parser() -> argparse.ArgumentParser:
    """The options, each with its default."""
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--model", default="smollm2")
    found.add_argument("--contexts", type=int, nargs="+", default=[2048, 8000, 32_000, 100_000])
    found.add_argument("--prompt", type=int, default=2048, help="contexts up to this are read")
    found.add_argument("--steps", type=int, default=24)
    found.add_argument("--rounds", type=int, default=3)
    found.add_argument("--checkpoints", type=Path, help="folder where the random model is kept")
    found.add_argument("--out", type=Path, required=True)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measures, and writes the report."""
    arguments = parser().parse_args(words)
    write_report(arguments.out, report(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())

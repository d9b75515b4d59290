"""Products of few rows with weights that no cache has, by this engine and by the libraries.

    python -m scripts.bench.products

One matrix of random weights in each of the formats that a verifier's are kept in, beside torch's
plain product of the same weights and oneDNN's of weights that are laid out once, as far as the
processor has them: all sides in shuffled turns in one process, over rows. A product of few rows
takes what reading the weights takes, so that plain reading stands beside them.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library, library
from kakeya_fleet.engine.backends.torch_backend.compiled.panels import Panels, panels_of
from kakeya_fleet.engine.backends.torch_backend.compiled.parts import Product, part_of
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import Workers
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import (
    WholePanels,
    whole_panels,
)
from kakeya_fleet.engine.backends.torch_backend.packed_linear import PackedLinear, can_pack
from scripts.bench.machine import command, machine, write_report

ROWS = (1, 2, 4, 8, 16)
INPUTS, OUTPUTS = 1024, 65_536
"""42 MB in four bits: more than the processors' caches."""
SEED = 7
READING = "reading"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Side:
    """A way to multiply float32 inputs [rows, inputs], and the bytes of its weights."""

    run: Callable[[Tensor], object]
    weight_bytes: int


def own_side(found: Library, workers: Workers, panels: Panels | WholePanels, size: int) -> Side:
    """The library's product with `panels`, which have `size` bytes."""
    matrix = panels.matrix

    def run(inputs: Tensor) -> Tensor:
        outputs = torch.empty(len(inputs), panels.width)
        found.functions.kakeya_product(
            workers,
            ctypes.byref(matrix),
            inputs.data_ptr(),
            len(inputs),
            outputs.data_ptr(),
            torch.get_num_threads(),
        )
        return outputs

    return Side(run, size)


def numbers_side(found: Library, workers: Workers, linear: nn.Linear) -> Side:
    """The library's product with the weights in their own format."""
    weight = linear.weight
    panels = panels_of(Product([part_of(linear)]), dtype=weight.dtype)
    if not isinstance(panels, Panels):
        raise SystemExit(f"no panels are made of {weight.dtype}: the shape fits none")
    return own_side(found, workers, panels, weight.numel() * weight.element_size())


def sides_of(found: Library, inputs: int, outputs: int) -> dict[str, Side]:
    """All ways by name; `reading` only adds its numbers up."""
    workers = Workers(found)
    made: dict[str, Side] = {}
    for name, dtype in DTYPES.items():
        linear = nn.Linear(inputs, outputs, bias=False, dtype=dtype)
        size = linear.weight.numel() * linear.weight.element_size()
        made[name] = numbers_side(found, workers, linear)
        made[f"torch {name}"] = Side(partial(_plain, linear.weight, dtype), size)
        if can_pack(dtype):
            packed = PackedLinear(linear, max(ROWS))
            made[f"oneDNN {name}"] = Side(partial(_packed, packed, dtype), size)
        if dtype == torch.float32:
            numbers = linear.weight.detach().clone().reshape(-1)
            made[READING] = Side(partial(_read, numbers), size)
            for bits in (8, 4):
                panels = whole_panels(Product([part_of(linear)]), bits)
                size = panels.blocks.numel() * panels.blocks.element_size()
                made[f"int{bits}"] = own_side(found, workers, panels, size)
    return made


def _plain(weight: Tensor, dtype: torch.dtype, inputs: Tensor) -> Tensor:
    return functional.linear(inputs.to(dtype), weight)


def _packed(product: PackedLinear, dtype: torch.dtype, inputs: Tensor) -> object:
    return product(inputs.to(dtype))


def _read(numbers: Tensor, inputs: Tensor) -> Tensor:  # noqa: ARG001 - as those that multiply
    return numbers.sum()


@torch.inference_mode()
def measured(sides: dict[str, Side], inputs: int, rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of each side, by rows."""
    order = random.Random(SEED)
    given = torch.randn(max(ROWS), inputs, generator=torch.Generator().manual_seed(SEED))
    found: dict[str, dict[str, float]] = {name: {} for name in sides}
    for rows in ROWS:
        own = given[:rows].contiguous()
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name in order.sample(sorted(sides), len(sides)):
                # Threads of another side's library spin for a while behind it.
                sides[name].run(own)
                begun = time.perf_counter()
                sides[name].run(own)
                times[name].append(1e3 * (time.perf_counter() - begun))
        for name, each in times.items():
            found[name][str(rows)] = statistics.median(each)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--outputs", type=int, default=OUTPUTS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/products.json"))
    asked = parser.parse_args(words)
    found = library()
    if found is None:
        print("this machine has no compiled decoder: the log says why", file=sys.stderr)
        return 1
    torch.manual_seed(SEED)
    sides = sides_of(found, asked.inputs, asked.outputs)
    milliseconds = measured(sides, asked.inputs, asked.rounds)
    report = {
        "command": command(__file__),
        "machine": machine(),
        "seed": SEED,
        "inputs": asked.inputs,
        "outputs": asked.outputs,
        "rounds": asked.rounds,
        "weight_bytes": {name: side.weight_bytes for name, side in sides.items()},
        "milliseconds": milliseconds,
    }
    write_report(asked.out, report)
    for name, by_rows in milliseconds.items():
        print(f"{name}: " + ", ".join(f"{rows}: {each:.2f}" for rows, each in by_rows.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

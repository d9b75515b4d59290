"""What exact groups cost: a layer of experts, by the engine and by the library, in turns.

Random weights at a real shape (Gemma 4's 26B-A4B, with fewer experts to fit), random routes.
The library's own ways are measured beside it, and in how many rows each changes bits in company.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from kakeya_fleet.engine.backends.torch_backend.activation import gated
from kakeya_fleet.engine.backends.torch_backend.experts import Expert, Experts, lay_out_experts
from kakeya_fleet.engine.backends.torch_backend.packed_linear import packed_linears
from kakeya_fleet.engine.contracts.positions import WIDTH
from scripts.bench.machine import command, machine, write_report

ROWS = (1, 8, 64)
LIBRARY = ("eager", "grouped_mm")
ALONE = 8
"""Rows that are computed alone besides."""

Report = dict[str, object]
Side = Callable[[Tensor, Tensor, Tensor], Tensor]


def sides(dtype: torch.dtype, count: int, hidden: int, inner: int, chosen: int) -> dict[str, Side]:
    """The engine's experts and the library's, of the same weights."""
    torch.manual_seed(0)
    gate_up = torch.randn(count, 2 * inner, hidden).mul_(0.02).to(dtype)
    down = torch.randn(count, hidden, inner).mul_(0.02).to(dtype)
    found: dict[str, Side] = {}
    for name in LIBRARY:
        config = Qwen3MoeConfig(
            hidden_size=hidden,
            moe_intermediate_size=inner,
            num_experts=count,
            num_experts_per_tok=chosen,
            experts_implementation=name,
        )
        with torch.device("meta"):
            library = Qwen3MoeExperts(config)
        library.load_state_dict({"gate_up_proj": gate_up, "down_proj": down}, assign=True)
        found[name] = library
    with torch.device("meta"):
        own = Experts(
            partial(gated, functional.silu),
            (Expert(hidden, inner, bias=False) for _ in range(count)),
        )
    names = ("gate_proj", "up_proj", "down_proj")
    for index, parts in enumerate(zip(*torch.split(gate_up, inner, 1), down, strict=True)):
        for name, weight in zip(names, parts, strict=True):
            linear = getattr(own[index], name)
            linear.weight = nn.Parameter(weight, requires_grad=False)
    lay_out_experts(nn.Sequential(own), packed_linears(dtype, WIDTH).layer, {})
    return found | {"exact": own}


@torch.inference_mode()
def measure(
    found: dict[str, Side], dtype: torch.dtype, shape: Sequence[int], rounds: int
) -> Report:
    """Milliseconds of each side, the least of `rounds`, by rows; and whose bits company changes."""
    count, hidden, _, chosen = shape
    generator = torch.Generator().manual_seed(1)
    report: Report = {}
    for rows in ROWS:
        times: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(rounds):
            values = torch.randn(rows, hidden, generator=generator).to(dtype)
            shares, experts = torch.rand(rows, count, generator=generator).topk(chosen)
            route = values, experts, shares / shares.sum(-1, keepdim=True)
            for name, side in found.items():
                begun = time.perf_counter()
                together = side(*route)
                times[name].append(time.perf_counter() - begun)
        report[str(rows)] = {name: round(min(own) * 1e3, 2) for name, own in times.items()}
    changed = {}
    for name, side in found.items():
        together = side(*route)[:ALONE]
        alone = torch.cat([side(*(part[[row]] for part in route)) for row in range(ALONE)])
        changed[name] = int((together != alone).any(1).sum())
    return {"milliseconds": report, f"of {ALONE} rows company changes": changed}


def main() -> None:
    """Measures, prints and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=2816)
    parser.add_argument("--inner", type=int, default=704)
    parser.add_argument("--chosen", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("benchmarks/experts.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    shape = (arguments.experts, arguments.hidden, arguments.inner, arguments.chosen)
    found: dict[str, object] = {}
    for dtype in (torch.bfloat16, torch.float32):
        own = measure(sides(dtype, *shape), dtype, shape, arguments.rounds)
        found[str(dtype).removeprefix("torch.")] = own
        print(f"{dtype}: {own}", file=sys.stderr)
    report = {"command": command(__file__), "machine": machine(), "shape": shape, "found": found}
    write_report(arguments.out, report)


if __name__ == "__main__":
    main()

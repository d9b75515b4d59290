"""A verifier whose evicted keys and values another host keeps, by context and network.

    python -m scripts.bench.archive --out benchmarks/archive.json

Random weights at a real model's shape, random keys and values written into every
cache and store: that changes no times and no bytes. Each context is decoded behind
by full attention, and by `restored` with the archive in this process, in another
one over loopback, and in another network namespace behind two wires (see
`scripts.bench.network_namespaces`; without root they are left out, by name). Steps are
committed ones, so that what they evict travels too. The sides take turns in an
order shuffled anew every round; where memory does not hold them all they follow
each other. `full` must fit a stated budget of K/V bytes, as a session's must.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.kv.handover import DEPOSIT_MULTIPLE
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.verifiers.exactness import settle
from kakeya_fleet.fleet.quantities import parse_bytes
from scripts.bench.archive_figures import Turn, Turns, merged, verdict
from scripts.bench.archive_sides import Bench, Opened, Place, Side
from scripts.bench.decode_models import DTYPES, SHAPES, checkpoint_folder, random_checkpoint
from scripts.bench.machine import command, machine, write_report
from scripts.bench.network_namespaces import NETWORKS, Road, TwoNamespaces, what_is_missing

TOY = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}
TOKEN = 7
SPARE_BYTES = 3 << 30
"""What must stay free beside caches and stores."""
SPARE_POSITIONS = 1024
"""Of the models' context beyond the longest one that is measured."""
METHOD = (
    "Random weights, random K/V. Verifier and archives share this machine: its cores and its "
    "memory bus, and a network's wire is a process besides; two hosts have twice of each. A turn "
    "commits tokens one by one, then in blocks; tokens a second are those of the whole turn, "
    "deposits included, a block counted as if all of it were accepted."
)
FIGURES_ARE = {
    "verifier_kv_bytes": "bytes of the verifier's cache, asked of its tensors",
    "archive_kv_bytes": "bytes of the tensors that keep what was evicted, wherever they are",
    "verifier_resident_bytes": "what opening and filling added to the resident set here, an "
    "archive in this process included",
    "archive_resident_bytes": "the resident set of the archive's process, all of it",
    "payload_bytes_a_token": "of deposits, queries and partial outputs, both ways, counted on the "
    "tensors",
    "wire_bytes_a_token": "of IP packets, both ways, counted by the kernel on a device that "
    "carries nothing else",
}


def sides_of(roads: Sequence[Road]) -> list[Side]:
    """All that are compared."""
    plain = [Side(place) for place in Place if place is not Place.NETWORK]
    return [*plain, *(Side(Place.NETWORK, road) for road in roads)]


def measure_context(
    bench: Bench, sides: Sequence[Side], context: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One context: all sides at once when memory holds them, else one place after the other."""
    found: dict[str, Any] = {}
    places = list(dict.fromkeys(side.place for side in sides))
    bytes_each = context * bench.verifier.info.kv_bytes_per_token
    free = psutil.virtual_memory().available - SPARE_BYTES
    together = not arguments.in_turn and len(places) * bytes_each < free
    for group in [places] if together else [[place] for place in places]:
        if len(group) == 1 and bytes_each > free:
            found |= {side.name: {"left_out": "memory"} for side in sides if side.place in group}
            continue
        own = [side for side in sides if side.place in group]
        found |= _measure_group(bench, own, context, arguments)
    for side in sides:
        if side.place in (Place.NOWHERE, Place.HERE):
            needed = context * bench.verifier.info.kv_bytes_per_token
            found[side.name]["fits_budget"] = needed <= arguments.budget_bytes
    return {
        "context_tokens": context,
        "command": command(__file__),
        "at_once": together,
        "rounds": arguments.rounds,
        "networks": {
            side.road.network.name: side.road.summary() for side in sides if side.road is not None
        },
        "sides": {side.name: found[side.name] for side in sides},
    }


def _measure_group(
    bench: Bench, sides: Sequence[Side], context: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    turns = {side: Turns() for side in sides}
    found: dict[str, Any] = {}
    order = random.Random(arguments.seed)
    tokens = (arguments.rounds * len(arguments.block_sizes) + 1) * arguments.turn_tokens
    with ExitStack() as stack:
        opened: dict[Place, Opened] = {}
        for side in sides:
            if side.place in opened or side.name in found:
                continue
            sharing = sum(other.place is side.place for other in sides)
            first = context - tokens * sharing
            try:
                began = time.perf_counter()
                opened[side.place] = stack.enter_context(
                    bench.opened(side.place, first, tokens * sharing)
                )
                filled = time.perf_counter() - began
                print(f"  {side.place}: filled in {filled:.0f} s", file=sys.stderr)
            except OutOfKvMemory as error:
                found[side.name] = {"left_out": "budget", "needed": str(error)}
        running = [side for side in sides if side.place in opened]
        for round_index in range(-1, arguments.rounds):
            # Round -1 warms every side up, with the fewest steps.
            sizes = arguments.block_sizes if round_index >= 0 else [max(arguments.block_sizes)]
            for side in order.sample(running, len(running)):
                bench.enter(side)
                for size in sizes:
                    turn = _turn(bench, opened[side.place], size, arguments.turn_tokens)
                    if round_index >= 0:
                        turns[side].add(turn)
        for side in running:
            found[side.name] = turns[side].summary(opened[side.place].memory())
    return found


def _turn(bench: Bench, opened: Opened, size: int, tokens: int) -> Turn:
    """Commits so many tokens, `size` at a time."""
    crossed, payload = opened.crossed_bytes(), opened.payload_bytes
    began = time.perf_counter()
    for _ in range(tokens // size):
        bench.verifier.forward(opened.cache, [TOKEN] * size, want_logits=True)
    seconds = time.perf_counter() - began
    after = opened.crossed_bytes()
    return Turn(
        size=size,
        tokens=tokens,
        seconds=seconds,
        payload_bytes=opened.payload_bytes - payload,
        wire_bytes=None if crossed is None or after is None else after - crossed,
    )


@contextmanager
def networks(*, wanted: bool) -> Iterator[tuple[TwoNamespaces | None, list[Road], str]]:
    """The namespaces, their calibrated roads, and why there are none."""
    lacking = what_is_missing() if wanted else "not asked for"
    namespaces = None
    if not lacking:
        try:
            namespaces = TwoNamespaces()
        except OSError as error:
            lacking = str(error)
    if namespaces is None:
        print(f"without networks: {lacking}", file=sys.stderr)
        yield None, [], lacking
        return
    with namespaces:
        yield namespaces, [namespaces.calibrated(network) for network in NETWORKS], ""


def run(arguments: argparse.Namespace, folders: Path) -> None:
    """Measures every context; the report is written after each."""
    longest = max(arguments.contexts)
    shape = TOY if arguments.quick else {}
    folder = random_checkpoint(
        arguments.model,
        arguments.dtype,
        folders,
        **shape,
        max_position_embeddings=max(longest, arguments.positions) + SPARE_POSITIONS,
    )
    verifier = load_verifier(
        ModelFolder(folder, folder.name), backend="torch", dtype=arguments.dtype
    )
    settle(verifier)
    old: list[Mapping[str, Any]] = []
    if arguments.add and arguments.out.is_file():
        old = json.loads(arguments.out.read_text())["contexts"]
    with networks(wanted=arguments.networks) as (namespaces, roads, lacking):
        bench = Bench(
            verifier=verifier,
            sink=arguments.sink,
            window=arguments.window,
            budget_bytes=arguments.budget_bytes,
            archive_amount=arguments.archive,
            threads=arguments.threads,
            namespaces=namespaces,
        )
        new: list[Mapping[str, Any]] = []
        for context in arguments.contexts:
            print(f"{context} tokens", file=sys.stderr)
            new.append(measure_context(bench, sides_of(roads), context, arguments))
            contexts = merged(old, new)
            write_report(
                arguments.out,
                {
                    "command": command(__file__),
                    "machine": machine(),
                    "method": METHOD,
                    "figures_are": FIGURES_ARE,
                    "model": "toy" if arguments.quick else f"{arguments.model} shape",
                    "weights": "random",
                    "dtype": arguments.dtype,
                    "sink_tokens": arguments.sink,
                    "window_tokens": arguments.window,
                    "kv_budget_bytes": arguments.budget_bytes,
                    "kv_bytes_a_token": verifier.info.kv_bytes_per_token,
                    "networks_left_out": lacking,
                    "contexts": contexts,
                    "verdict": verdict(contexts),
                },
            )
            show(new[-1])
    show_verdict(verdict(merged(old, new)))


def show(found: Mapping[str, Any]) -> None:
    """One context's speeds."""
    for name, side in found["sides"].items():
        speeds = "  ".join(
            f"x{size} {cell['tokens_per_second']['median']:.3g}"
            for size, cell in side.get("blocks", {}).items()
        )
        print(f"{found['context_tokens']:>7} {name:<42} {speeds or side.get('left_out')}")


def show_verdict(found: Mapping[str, Any]) -> None:
    """The figures that the goals are about."""
    for tokens, by_side in found["over_full"].items():
        for name, by_size in by_side.items():
            ratios = {
                size: round(cell["median"], 3) for size, cell in by_size.items() if cell is not None
            }
            if ratios:
                print(f"{tokens:>7} {name:<42} over full {ratios}")
    for goal in (
        "slope_is_zero",
        "bytes_are_constant",
        "remote_over_full_met",
        "ahead_where_full_does_not_fit",
    ):
        print(f"{goal}: {found[goal]}")


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=sorted(SHAPES), default="Qwen3-0.6B")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    parser.add_argument("--contexts", nargs="+", type=int)
    parser.add_argument(
        "--positions", type=int, default=131_072, help="that the model's checkpoint is made for"
    )
    parser.add_argument("--block-sizes", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--turn-tokens", type=int, default=16, help="committed in one turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--budget", default="8GiB", help="K/V bytes of the verifier's host")
    parser.add_argument("--archive", default="18GiB", help="bytes that an archive offers")
    parser.add_argument("--threads", type=int, default=1, help="of either process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--in-turn", action="store_true", help="one place after the other, whatever fits"
    )
    parser.add_argument("--add", action="store_true", help="to the contexts of the report there")
    parser.add_argument("--checkpoints", type=Path, help="keeps the random checkpoint there")
    parser.add_argument("--quick", action="store_true", help="a toy and short contexts")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/archive.json"))
    arguments = parser.parse_args(words)
    if not arguments.contexts:
        arguments.contexts = [256, 512] if arguments.quick else [2048, 8192, 32_768]
    if arguments.quick:
        arguments.positions, arguments.rounds = 1024, 1
        arguments.budget, arguments.archive = "100KiB", "64MiB"
    arguments.budget_bytes = parse_bytes(arguments.budget)
    if any(arguments.turn_tokens % size for size in (*arguments.block_sizes, DEPOSIT_MULTIPLE)):
        parser.error(f"a turn is whole blocks and whole deposits of {DEPOSIT_MULTIPLE} tokens")
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    with checkpoint_folder(arguments.checkpoints) as folder:
        run(arguments, folder)


if __name__ == "__main__":
    main()

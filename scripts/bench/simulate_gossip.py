"""Measures the rules of membership in virtual time and writes JSON.

    .venv/bin/python -m scripts.bench.simulate_gossip --out gossip.json
    .venv/bin/python -m scripts.bench.simulate_gossip --nodes 1000 --samples 3 --out big.json

Every figure follows from the seeds alone: the same arguments give the same file.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from kakeya_fleet.fleet.cards.liveness import Liveness
from scripts.support.simulated_fleet import SimulatedFleet

LOSS = 0.3
# No scenario takes longer than this in virtual seconds; what does has failed.
LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Convergence:
    """Rounds until all nodes hold a changed card, over `samples` changes."""

    node_count: int
    loss: float
    samples: int
    rounds_mean: float
    rounds_p99: float
    bound: float
    buried: int


@dataclass(frozen=True)
class Durations:
    """Virtual seconds of one scenario over seeds, and nodes that were falsely held DEAD."""

    scenario: str
    node_count: int
    seconds: list[float]
    falsely_buried: int


def cut_between(half: set[str]) -> Callable[[str, str], bool]:
    """Drops what crosses the border of `half`."""
    return lambda sender, receiver: (sender in half) != (receiver in half)


def cut_from(sender: str, receiver: str) -> Callable[[str, str], bool]:
    """Drops what goes one way between two nodes."""
    return lambda source, target: (source, target) == (sender, receiver)


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def convergence(node_count: int, loss: float, samples: int, seed: int) -> Convergence:
    """Changes one card after another and counts the rounds to everybody."""
    rng = Random(seed)
    fleet = SimulatedFleet(node_count, rng, loss=loss)
    fleet.run(3.0)
    nodes = list(fleet.nodes.values())
    rounds: list[float] = []
    for _ in range(samples):
        started, changed = fleet.now, fleet.announce(rng.choice(nodes)).card
        least = (changed.incarnation, changed.sequence)

        def is_known(node_id: str = changed.node_id, least: tuple[int, int] = least) -> bool:
            held = (node.membership.registry.card(node_id) for node in fleet.living())
            return all((card.incarnation, card.sequence) >= least for card in held)

        fleet.run(LIMIT_SECONDS, until=is_known)
        rounds.append(fleet.now - started)
    slope, offset = (1.4, 5.0) if loss else (1.0, 4.0)
    return Convergence(
        node_count=node_count,
        loss=loss,
        samples=samples,
        rounds_mean=round(sum(rounds) / samples, 2),
        rounds_p99=round(nearest_rank(rounds, 0.99), 2),
        bound=round(slope * math.log2(node_count) + offset, 2),
        buried=len(fleet.burials),
    )


def death(node_count: int, seeds: Sequence[int]) -> Durations:
    """From a kill until every survivor holds the node DEAD."""
    seconds: list[float] = []
    falsely = 0
    for seed in seeds:
        fleet = SimulatedFleet(node_count, Random(seed))
        fleet.run(3.0 + seed / len(seeds))
        victim = next(iter(fleet.nodes.values()))
        fleet.kill(victim)
        seconds.append(_until_all_hold_dead(fleet, victim.node_id))
        falsely += sum(burial.subject != victim.node_id for burial in fleet.burials)
    return Durations("death", node_count, seconds, falsely)


def frozen(node_count: int, seeds: Sequence[int]) -> Durations:
    """From the thaw of a node held DEAD until all hold it ALIVE."""
    seconds: list[float] = []
    falsely = 0
    for seed in seeds:
        fleet = SimulatedFleet(node_count, Random(seed))
        fleet.run(3.0)
        node = next(iter(fleet.nodes.values()))
        fleet.freeze(node)
        _until_all_hold_dead(fleet, node.node_id)
        fleet.thaw(node)
        seconds.append(_until(fleet, wanted_roots=False))
        falsely += sum(burial.subject != node.node_id for burial in fleet.burials)
    return Durations("rejoin after a freeze", node_count, seconds, falsely)


def partition(node_count: int, seeds: Sequence[int]) -> Durations:
    """From the end of a 50/50 cut of 60 s until all agree and hold all ALIVE."""
    seconds: list[float] = []
    for seed in seeds:
        fleet = SimulatedFleet(node_count, Random(seed))
        fleet.run(3.0)
        half = set(list(fleet.nodes)[: node_count // 2])
        fleet.is_cut = cut_between(half)
        fleet.run(60.0)
        fleet.is_cut = lambda _sender, _receiver: False
        seconds.append(_until(fleet, wanted_roots=True))
    return Durations("heal after a partition of 60 s", node_count, seconds, 0)


def power_cut(node_count: int, seeds: Sequence[int]) -> Durations:
    """From the last boot, all with one seed peer, until all agree."""
    seconds = []
    for seed in seeds:
        fleet = SimulatedFleet(node_count, Random(seed), acquainted=False)
        seconds.append(_until(fleet, wanted_roots=True))
    return Durations("power cut", node_count, seconds, 0)


def lossy(node_count: int, seeds: Sequence[int]) -> Durations:
    """Ten minutes with 30 % of the messages lost: nobody may be buried."""
    falsely = 0
    for seed in seeds:
        fleet = SimulatedFleet(node_count, Random(seed), loss=LOSS)
        fleet.run(600.0)
        falsely += len(fleet.burials)
    return Durations("ten minutes at 30 % loss", node_count, [600.0] * len(seeds), falsely)


def one_way(node_count: int, seeds: Sequence[int]) -> Durations:
    """Ten minutes in which one node's messages to one other are dropped."""
    falsely = 0
    for seed in seeds:
        fleet = SimulatedFleet(node_count, Random(seed))
        fleet.is_cut = cut_from(*list(fleet.nodes)[:2])
        fleet.run(600.0)
        falsely += len(fleet.burials)
    return Durations("ten minutes of a one-way cut", node_count, [600.0] * len(seeds), falsely)


def _until_all_hold_dead(fleet: SimulatedFleet, node_id: str) -> float:
    def is_dead_to_all() -> bool:
        return all(
            node.membership.registry.liveness(node_id) is Liveness.DEAD
            for node in fleet.living()
            if node.node_id != node_id
        )

    started = fleet.now
    fleet.run(LIMIT_SECONDS, until=is_dead_to_all)
    return round(fleet.now - started, 2)


def _until(fleet: SimulatedFleet, *, wanted_roots: bool) -> float:
    started = fleet.now
    fleet.run(
        LIMIT_SECONDS,
        until=lambda: fleet.knows_all() and (not wanted_roots or fleet.roots_agree()),
    )
    return round(fleet.now - started, 2)


def main() -> int:
    """Runs all scenarios; the exit code is 1 when a bound of the design is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 10, 50, 200])
    parser.add_argument("--samples", type=int, default=40, help="card changes a fleet size")
    parser.add_argument("--seeds", type=int, default=10, help="runs of each other scenario")
    parser.add_argument("--out", type=Path, default=Path("gossip.json"))
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    rows = [
        convergence(node_count, loss, arguments.samples, seed=1)
        for node_count in arguments.nodes
        for loss in (0.0, LOSS)
    ]
    scenarios = [
        death(2, seeds),
        death(10, seeds),
        frozen(10, seeds),
        partition(10, seeds),
        power_cut(10, seeds),
        one_way(5, seeds),
        lossy(10, seeds),
    ]
    report = {
        "convergence": [asdict(row) for row in rows],
        "scenarios": [asdict(scenario) for scenario in scenarios],
    }
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for row in rows:
        print(row)
    for scenario in scenarios:
        worst = max(scenario.seconds)
        print(f"{scenario.scenario}, {scenario.node_count} nodes: at most {worst} s, "
              f"{scenario.falsely_buried} falsely buried")  # fmt: skip
    is_kept = all(row.rounds_p99 <= row.bound for row in rows) and not any(
        scenario.falsely_buried for scenario in scenarios
    )
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())

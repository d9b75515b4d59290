"""What a link's tensors take before a road stands, and after the link has chosen."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kakeya_fleet.node.links.protocol.contract import LinkMode, RoadKind, TensorLink
from kakeya_fleet.node.links.protocol.settings import LARGE_BYTES
from scripts.bench.intervals import summary
from scripts.bench.link_peer import builders
from scripts.bench.link_sides import OnLink, Peer, link

SMALLEST_BYTES, LARGEST_BYTES = LARGE_BYTES, 8 << 20
CHOICE_SECONDS = 30.0
TRIED_TENSORS = 14
"""After a road stands: those of a trial by both ways, and a few more."""
NOISE = 1.05
"""What two links that both stay on gRPC may differ by: they are the same way then."""
PROMOTION_IS = (
    "Each link of mode `auto` carries tensors of one payload, drawn log-uniformly. Before: until "
    "the first road stands. Then its choice is waited for. After: tensors of it and of a link that "
    "stays on gRPC, in turn. after_over_grpc is the ratio of these medians, and "
    "after_over_before that to the same link's own tensors before."
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """One link: medians of seconds a tensor."""

    payload_bytes: int
    before: float
    after: float
    grpc: float
    kind: RoadKind
    reason: str

    def summary(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "payload_bytes": self.payload_bytes,
            "before_seconds": self.before,
            "after_seconds": self.after,
            "grpc_beside_seconds": self.grpc,
            "after_over_grpc": self.after / self.grpc,
            "after_over_before": self.after / self.before,
            "carried_by": self.kind.value,
            "reason": self.reason,
        }


async def promotions(
    name: str, roads: Sequence[RoadKind], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Links that have these roads, one after the other, and what is said of them."""
    order = random.Random(arguments.seed)
    found = []
    async with await Peer.start() as peer:
        for index in range(arguments.links):
            share = order.random()
            size = round(SMALLEST_BYTES * (LARGEST_BYTES / SMALLEST_BYTES) ** share)
            data = memoryview(order.randbytes(size))
            found.append(await _one(peer, roads, data, arguments.tensors, order))
            print(f"{name}: link {index + 1} of {arguments.links}", file=sys.stderr)
    return conclusions(found)


def conclusions(found: Sequence[Chosen]) -> dict[str, Any]:
    """All links, and whether promotion left them as fast as they were."""
    beside = [chosen.after / chosen.grpc for chosen in found]
    promoted = [chosen.after / chosen.grpc for chosen in found if chosen.kind is not RoadKind.GRPC]
    return {
        "is": PROMOTION_IS,
        "links": [chosen.summary() for chosen in found],
        "chosen": dict(Counter(chosen.kind.value for chosen in found)),
        "after_over_grpc": summary(beside),
        "most_after_over_grpc": max(beside),
        "after_over_grpc_of_promoted": summary(promoted) if promoted else None,
        "after_over_before": summary([chosen.after / chosen.before for chosen in found]),
        "goal": "the median link is no slower than one that stays on gRPC",
        "goal_met": goal_met(beside, [chosen.kind for chosen in found]),
    }


def goal_met(ratios: Sequence[float], kinds: Sequence[RoadKind]) -> bool:
    """Whether the median link is no slower; where most stay on gRPC, but for noise."""
    stays = sum(kind is RoadKind.GRPC for kind in kinds) * 2 > len(kinds)
    return median(ratios) <= (NOISE if stays else 1.0)


async def _one(
    peer: Peer,
    roads: Sequence[RoadKind],
    data: memoryview,
    tensors: int,
    order: random.Random,
) -> Chosen:
    own = builders()
    offered = [own[kind] for kind in roads]
    async with link(peer, LinkMode.AUTO, offered) as auto, link(peer, LinkMode.GRPC, ()) as plain:
        before = await _until_chosen(auto, data)
        sides = {"auto": OnLink(auto), "grpc": OnLink(plain)}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(tensors):
            for name in order.sample(list(sides), len(sides)):
                seconds[name] += await sides[name].transfers(data, 1)
        return Chosen(
            payload_bytes=len(data),
            before=median(before),
            after=median(seconds["auto"]),
            grpc=median(seconds["grpc"]),
            kind=auto.state.kind,
            reason=auto.state.reason,
        )


async def _until_chosen(auto: TensorLink, data: memoryview) -> list[float]:
    """Sends until the link has made its choice; the seconds before a road stood."""
    side = OnLink(auto)
    before: list[float] = []
    tried = 0
    until = time.monotonic() + CHOICE_SECONDS
    while tried < TRIED_TENSORS and time.monotonic() < until:
        had_road = auto.state.generation > 0
        seconds = await side.transfers(data, 1)
        if had_road:
            tried += 1
        else:
            before += seconds
        # What reads its answers and builds roads has its turn.
        await asyncio.sleep(0)
    return before

"""A process that serves replaying proposers, as a node serves its own, behind slower networks.

    echo SPEC | python -m scripts.bench.replaying_node

SPEC is one line of JSON: {"proposers": [{"model_id", "known", "draft_seconds"}],
"round_trip_seconds": [...]}. Prints one line of JSON, the address for each added
round trip, and ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence

from kakeya.v1 import proposer_pb2_grpc
from kakeya_fleet.engine.proposers.local_source import run_inline
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.proposer.proposer_service import ProposerServicer
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer, run_in_thread
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from kakeya_fleet.node.rpc.listening import listen, make_server
from scripts.bench.delay_relay import DelayRelay
from scripts.bench.replaying import ReplayingProposer
from scripts.support.child_process import ChildProcess

STREAMS = 64


class ReplayingNode(ChildProcess):
    """The process from outside."""

    def __init__(
        self, proposers: Sequence[Mapping[str, object]], round_trips: Sequence[float]
    ) -> None:
        super().__init__("scripts.bench.replaying_node")
        spec = {"proposers": list(proposers), "round_trip_seconds": list(round_trips)}
        self.tell(json.dumps(spec))
        self._addresses: list[str] = json.loads(self.hear())
        self._round_trips = list(round_trips)

    def address(self, round_trip_seconds: float) -> str:
        """host:port behind which the network is so much slower."""
        return self._addresses[self._round_trips.index(round_trip_seconds)]


async def serve(spec: Mapping[str, list[object]]) -> None:
    """Serves until the standard input ends."""
    metrics = NodeMetrics()
    served = {}
    for entry in spec["proposers"]:
        if not isinstance(entry, dict):
            raise TypeError("a proposer is an object")
        proposer = ReplayingProposer(entry["model_id"], entry["known"], entry["draft_seconds"])
        offer = ModelOffer(
            model_id=proposer.model_id, role=Role.PROPOSER, kind=ModelKind.NGRAM, step_costs=()
        )
        run = run_in_thread if entry["draft_seconds"] else run_inline
        served[proposer.model_id] = ServedProposer(proposer, offer, run, run_in_thread)
    server = make_server(ErrorInterceptor(metrics))
    proposer_pb2_grpc.add_ProposerServiceServicer_to_server(
        ProposerServicer(served, metrics, Allowances(Limits(), metrics)), server
    )
    port = listen(server, "127.0.0.1", 0, 0)
    await server.start()
    relays: list[DelayRelay] = []
    addresses = []
    for seconds in spec["round_trip_seconds"]:
        own_port = port
        if isinstance(seconds, float | int) and seconds > 0:
            relay = DelayRelay("127.0.0.1", port, float(seconds))
            relays.append(relay)
            own_port = await relay.start()
        addresses.append(f"127.0.0.1:{own_port}")
    print(json.dumps(addresses), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for relay in relays:
        await relay.close()
    await server.stop(None)


def main() -> None:
    """Reads the specification and serves."""
    asyncio.run(serve(json.loads(sys.stdin.readline())))


if __name__ == "__main__":
    main()

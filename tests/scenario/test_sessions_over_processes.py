"""Many sessions of one verifier, drafted for from another process."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from kakeya import AsyncClient, Completion, Speculation
from scripts.support.agent_process import AgentProcess, LocalFleet

TOKENS = 24


async def test_eight_interleaved_sessions_give_what_each_gives_alone(
    shared_fleet: LocalFleet,
    verifier: AgentProcess,
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    proposer = shared_fleet.start("many", serve=("proposer=ngram",), peers=(verifier.address,))
    node_id = proposer.node_id
    verifier.wait_for("peer_joined", lambda event: event["node_id"] == node_id)
    # 4 x (sink + window) = 80 tokens of history, past the window all along.
    rng = random.Random(20261120)
    histories = [tuple(rng.choices(range(4000), k=20)) * 4 for _ in range(8)]
    async with AsyncClient(verifier.address) as client:
        alone = [
            await generate(client, history, TOKENS, seed=index)
            for index, history in enumerate(histories)
        ]
        together = await asyncio.gather(
            *(
                generate(
                    client,
                    history,
                    TOKENS,
                    seed=index,
                    speculation=Speculation("ngram", node_id=node_id) if index % 2 else "off",
                )
                for index, history in enumerate(histories)
            )
        )
    for index, (one, other) in enumerate(zip(alone, together, strict=True)):
        assert one.token_ids == other.token_ids, f"session {index}"
    proposer.stop()

"""An agent whose proposer breaks the contract: `python -m scripts.faults.lying_agent LIE join ...`.

A node like any other but for what it answers to proposals. Writes one line of JSON to the file
of the variable `LIAR_TOLD` when a proposal that hangs is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import grpc.aio

from kakeya.v1 import proposer_pb2
from kakeya_fleet.node.cli.main import main as fleet
from kakeya_fleet.node.roles.proposer.proposer_service import ProposerServicer

Proposal = proposer_pb2.DraftProposal
Answer = proposer_pb2.DraftResponse
Lie = Callable[[Proposal], Answer]
TOLD = "LIAR_TOLD"
HANGING = "hanging"
NO_ID = 2**32 - 1
"""What a negative id is on the wire."""
_rng = random.Random(5)


def block(proposal: Proposal, token_ids: Sequence[int], **fields: float) -> Answer:
    """A well-formed answer but for its ids and `fields`."""
    told = {
        "block_id": proposal.block_id,
        "status": proposer_pb2.DRAFT_STATUS_DRAFTED,
        "base_length": proposal.base_length,
        "token_ids": token_ids,
        "compute_seconds": 1e-5,
    }
    return Answer(**told | fields)  # type: ignore[arg-type]


LIES: dict[str, Lie] = {
    "garbage": lambda asked: block(asked, [_rng.randrange(512) for _ in range(asked.block_size)]),
    "too many": lambda asked: block(asked, [1] * (asked.block_size + 1)),
    "too few": lambda asked: block(asked, [1]),
    "none": lambda asked: block(asked, []),
    "out of vocabulary": lambda asked: block(asked, [1 << 20] * asked.block_size),
    "negative": lambda asked: block(asked, [NO_ID] * asked.block_size),
    "NaN": lambda asked: block(asked, [1] * asked.block_size, compute_seconds=float("nan")),
    "stale": lambda asked: block(asked, [1] * asked.block_size, base_length=asked.base_length - 1),
}


def draft(lie: str) -> Callable[..., AsyncIterator[Answer]]:
    """What stands in for `ProposerService.Draft`."""

    async def lying(
        _self: ProposerServicer,
        requests: AsyncIterator[proposer_pb2.DraftRequest],
        context: grpc.aio.ServicerContext[proposer_pb2.DraftRequest, Answer],
    ) -> AsyncIterator[Answer]:
        await context.send_initial_metadata(())
        try:
            async for request in requests:
                if request.WhichOneof("kind") != "proposal":
                    continue
                if lie == HANGING:
                    _tell(asked_at=time.monotonic())
                    await asyncio.Event().wait()
                yield LIES[lie](request.proposal)
        except asyncio.CancelledError:
            _tell(cancelled_at=time.monotonic())
            raise

    return lying


def _tell(**facts: float) -> None:
    if TOLD in os.environ:
        with Path(os.environ[TOLD]).open("a") as file:
            file.write(json.dumps(facts) + "\n")


def main() -> None:
    """Runs `fleet` with a proposer that lies."""
    lie = sys.argv.pop(1)
    ProposerServicer.Draft = draft(lie)  # type: ignore[method-assign,assignment]
    fleet()


if __name__ == "__main__":
    main()

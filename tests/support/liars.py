"""Proposers that break the contract, each in its own way, as real servers.

A liar keeps to the protocol but for what its name says. `answered` counts the
proposals that it took, `streams` the streams that were opened.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Never

import grpc
import grpc.aio

from kakeya.v1 import proposer_pb2, proposer_pb2_grpc

DRAFTED = proposer_pb2.DRAFT_STATUS_DRAFTED


class Liar(proposer_pb2_grpc.ProposerServiceServicer):
    """Answers each proposal with what `lie(proposal, base_length, text)` makes of it.

    `text` is history and assumed tokens. No response ends the stream.
    """

    def __init__(
        self,
        lie: Callable[
            [proposer_pb2.DraftProposal, Sequence[int]], proposer_pb2.DraftResponse | None
        ],
        *,
        delay_seconds: float = 0.0,
    ) -> None:
        self.lie = lie
        self.delay_seconds = delay_seconds
        self.answered = 0
        self.streams = 0
        self.sent_token_count = 0
        self.cancelled = asyncio.Event()

    async def ProposeBlock(  # noqa: N802
        self,
        request: proposer_pb2.ProposeBlockRequest,
        context: grpc.aio.ServicerContext[
            proposer_pb2.ProposeBlockRequest, proposer_pb2.ProposeBlockResponse
        ],
    ) -> Never:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")

    async def pause(self) -> None:
        """What it takes before each answer."""
        await asyncio.sleep(self.delay_seconds)

    # grpc.aio takes a coroutine that writes as well as a generator.
    async def Draft(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: AsyncIterator[proposer_pb2.DraftRequest],
        context: grpc.aio.ServicerContext[proposer_pb2.DraftRequest, proposer_pb2.DraftResponse],
    ) -> None:
        self.streams += 1
        history: list[int] = []
        try:
            async for request in request_iterator:
                kind = request.WhichOneof("kind")
                if kind == "open":
                    history += request.open.prefix_token_ids
                    self.sent_token_count += len(request.open.prefix_token_ids)
                    await context.send_initial_metadata(())
                elif kind == "proposal":
                    history += request.proposal.committed_token_ids
                    self.sent_token_count += len(request.proposal.committed_token_ids)
                    await self.pause()
                    text = [*history, *request.proposal.assumed_token_ids]
                    response = self.lie(request.proposal, text)
                    self.answered += 1
                    if response is None:
                        return
                    await context.write(response)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def block(
    proposal: proposer_pb2.DraftProposal, token_ids: Sequence[int]
) -> proposer_pb2.DraftResponse:
    """A well-formed answer."""
    return proposer_pb2.DraftResponse(
        block_id=proposal.block_id,
        status=DRAFTED,
        base_length=proposal.base_length,
        token_ids=token_ids,
        compute_seconds=1e-5,
    )


def garbage() -> Liar:
    """Ids of the vocabulary, drawn at random."""
    rng = random.Random(5)
    return Liar(
        lambda proposal, _text: block(
            proposal, [rng.randrange(96) for _ in range(proposal.block_size)]
        )
    )


def silent() -> Liar:
    """Never has a guess, which is no fault."""
    return Liar(lambda proposal, _text: block(proposal, []))


def too_many() -> Liar:
    """One token more than asked for."""
    return Liar(lambda proposal, _text: block(proposal, [1] * (proposal.block_size + 1)))


def out_of_vocabulary() -> Liar:
    """The first id that is none, and a negative one as uint32 carries it."""
    return Liar(
        lambda proposal, _text: block(proposal, [96, 2**32 - 1][: proposal.block_size] or [96])
    )


def stale() -> Liar:
    """Drafts for another history."""

    def lie(proposal: proposer_pb2.DraftProposal, _text: object) -> proposer_pb2.DraftResponse:
        response = block(proposal, [1] * proposal.block_size)
        response.base_length += 1
        return response

    return Liar(lie)


def doubled() -> Liar:
    """Answers with the id of the proposal before."""

    def lie(proposal: proposer_pb2.DraftProposal, _text: object) -> proposer_pb2.DraftResponse:
        response = block(proposal, [1] * proposal.block_size)
        response.block_id -= 1
        return response

    return Liar(lie)


def statusless() -> Liar:
    """Leaves the status out."""

    def lie(proposal: proposer_pb2.DraftProposal, _text: object) -> proposer_pb2.DraftResponse:
        response = block(proposal, [1] * proposal.block_size)
        response.status = proposer_pb2.DRAFT_STATUS_UNSPECIFIED
        return response

    return Liar(lie)


def hanging() -> Liar:
    """Never answers."""
    return Liar(lambda proposal, _text: block(proposal, [1]), delay_seconds=3600.0)


def dying() -> Liar:
    """Ends the stream instead of answering."""
    return Liar(lambda _proposal, _text: None)


def nan_seconds() -> Liar:
    """Claims that its compute time is no number."""

    def lie(proposal: proposer_pb2.DraftProposal, _text: object) -> proposer_pb2.DraftResponse:
        response = block(proposal, [])
        response.compute_seconds = float("nan")
        return response

    return Liar(lie)


def knowing(expected: Sequence[int], miss: Callable[[int], bool] = lambda _position: False) -> Liar:
    """Drafts `expected`, the whole stream with its prompt, and errs where `miss` says."""

    def lie(
        proposal: proposer_pb2.DraftProposal, text: Sequence[int]
    ) -> proposer_pb2.DraftResponse:
        start = len(text)
        guess = list(expected[start : start + proposal.block_size])
        wrong = [
            (token + 1) % 96 if miss(start + offset) else token
            for offset, token in enumerate(guess)
        ]
        return block(proposal, wrong)

    return Liar(lie)

"""The proposer's side of a stream without a wire: cancels, heavy models, limits."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.errors import BadParameters
from engine.proposers.contract import Draft
from engine.proposers.ngram import NgramProposer
from fleet.card import ModelKind, ModelOffer, Role
from kakeya.v1 import proposer_pb2
from node.drafting.draft_session import MAX_WAITING, DraftSession
from node.drafting.served_proposer import ServedProposer
from node.rpc.refusals import TokenizerDiffers
from node.sessions.worker import ModelWorker

OPENING = proposer_pb2.DraftOpen(model_id="m", vocabulary_size=96, prefix_token_ids=[1, 2, 3] * 4)


async def inline(step):
    return step()


def served(proposer, run=inline, **fields):
    offer = ModelOffer(model_id="m", role=Role.PROPOSER, kind=ModelKind.NGRAM, **fields)
    return ServedProposer(proposer, offer, run, run)


def proposal(block_id, base_length=12, **fields):
    return proposer_pb2.DraftRequest(
        proposal=proposer_pb2.DraftProposal(
            block_id=block_id, base_length=base_length, block_size=2, **fields
        )
    )


def cancel(through):
    return proposer_pb2.DraftRequest(cancel=proposer_pb2.DraftCancel(through_block_id=through))


class HeavyProposer:
    """A model whose every draft waits for `gate`; says when one began."""

    model_id = "m"

    def __init__(self):
        self.began, self.gate = threading.Event(), threading.Event()
        self.length = 0

    def open(self, prefix):
        self.length = len(prefix)
        return self

    def commit(self, token_ids):
        self.length += len(token_ids)

    def propose(self, assumed, block_size, step_count):
        self.began.set()
        assert self.gate.wait(timeout=10)
        return Draft((7,))


async def test_what_was_cancelled_before_its_draft_is_answered_as_cancelled():
    session = DraftSession(served(NgramProposer()), OPENING)
    for block_id in (1, 2, 3):
        session.accept(proposal(block_id, 11 + block_id, committed_token_ids=[1] * (block_id > 1)))
    session.accept(cancel(2))
    session.end()
    answers = [await session.next_response() for _ in range(4)]
    assert answers.pop() is None
    assert [answer.status for answer in answers] == [
        proposer_pb2.DRAFT_STATUS_CANCELLED,
        proposer_pb2.DRAFT_STATUS_CANCELLED,
        proposer_pb2.DRAFT_STATUS_DRAFTED,
    ]
    # The tokens of what was cancelled are part of the history.
    assert [answer.base_length for answer in answers] == [12, 13, 14]


async def test_a_heavy_model_leaves_the_loop_free_and_hears_of_cancels_meanwhile():
    model, worker = HeavyProposer(), ModelWorker("heavy")
    session = DraftSession(served(model, worker.run), OPENING)
    session.accept(proposal(1))
    session.accept(proposal(2))
    answering = asyncio.create_task(session.next_response())
    await asyncio.to_thread(model.began.wait)
    # The draft runs, and the loop is here to take this.
    session.accept(cancel(2))
    model.gate.set()
    assert (await answering).status == proposer_pb2.DRAFT_STATUS_DRAFTED
    assert (await session.next_response()).status == proposer_pb2.DRAFT_STATUS_CANCELLED
    await worker.close()


async def test_a_failure_ends_the_stream_before_what_waits():
    session = DraftSession(served(NgramProposer()), OPENING)
    session.accept(proposal(1))
    session.fail(RuntimeError("leaving"))
    with pytest.raises(RuntimeError, match="leaving"):
        await session.next_response()


async def test_a_flood_of_proposals_is_refused():
    session = DraftSession(served(NgramProposer()), OPENING)
    for block_id in range(1, MAX_WAITING + 1):
        session.accept(proposal(block_id))
    with pytest.raises(BadParameters, match="wait"):
        session.accept(proposal(MAX_WAITING + 1))


@pytest.mark.parametrize(
    ("own", "theirs", "fits"),
    [("", "a", True), ("a", "a", True), ("a", "b", False), ("a", "", False)],
)
async def test_the_tokenizers_must_be_equal_unless_any_will_do(own, theirs, fits):
    opening = proposer_pb2.DraftOpen(vocabulary_size=9, tokenizer_digest=theirs)
    proposer = served(NgramProposer(), tokenizer_digest=own)
    if fits:
        DraftSession(proposer, opening)
    else:
        with pytest.raises(TokenizerDiffers):
            DraftSession(proposer, opening)

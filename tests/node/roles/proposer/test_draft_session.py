"""The proposer's side of a stream without a wire: cancels, heavy models, limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any, Never, Self, cast

import grpc.aio
import numpy as np
import pytest

from kakeya.v1 import proposer_pb2
from kakeya_fleet.engine.contracts.blocking import Runner
from kakeya_fleet.engine.contracts.draft import Draft, EagerDraftState, Proposer
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.proposer_info import ProposerInfo
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues, as_float32
from kakeya_fleet.engine.errors import BadParameters, TokenOutOfVocabulary
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource, run_inline
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.admission.holding import Holding
from kakeya_fleet.node.admission.limits import DraftLimits
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.proposer.draft_memory import (
    KEPT_ID_BYTES,
    MAX_ASSUMED,
    MESSAGE_BYTES,
    DraftMemories,
    DraftMemory,
)
from kakeya_fleet.node.roles.proposer.draft_session import DraftSession, propose_once
from kakeya_fleet.node.roles.proposer.history_wire import history_to_wire
from kakeya_fleet.node.roles.proposer.proposer_service import ProposerServicer
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer, run_in_thread
from kakeya_fleet.node.roles.worker import ModelWorker
from kakeya_fleet.node.rpc.refusals import TokenizerDiffers, TooManyStreams
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS

TAKEN = proposer_pb2.DRAFT_STATUS_TAKEN
Context = grpc.aio.ServicerContext[proposer_pb2.DraftRequest, proposer_pb2.DraftResponse]
OPENING = proposer_pb2.DraftOpen(model_id="m", vocabulary_size=96, prefix_token_ids=[1, 2, 3] * 4)


def served(proposer: Proposer, run: Runner = run_inline, **fields: Any) -> ServedProposer:
    offer = ModelOffer(model_id="m", role=Role.PROPOSER, kind=ModelKind.NGRAM, **fields)
    return ServedProposer(proposer, offer, run, run)


def proposal(block_id: int, base_length: int = 12, **fields: Any) -> proposer_pb2.DraftRequest:
    return proposer_pb2.DraftRequest(
        proposal=proposer_pb2.DraftProposal(
            block_id=block_id, base_length=base_length, block_size=2, **fields
        )
    )


def cancel(through: int) -> proposer_pb2.DraftRequest:
    return proposer_pb2.DraftRequest(cancel=proposer_pb2.DraftCancel(through_block_id=through))


def memory(limits: DraftLimits | None = None) -> DraftMemory:
    """That of a stream alone on its node."""
    limits = limits or DraftLimits()
    shared = allowances_of(drafts=limits)
    history = Holding(shared.share("drafts.history_bytes", TooManyStreams), NOBODY)
    waiting = Holding(shared.share("drafts.waiting_bytes", TooManyStreams), NOBODY)
    return DraftMemory(limits, history, waiting)


class HeavyProposer(EagerDraftState):
    """A model whose every draft waits for `gate`; says when one began."""

    model_id = "m"
    info = ProposerInfo("m", "ngram")
    encoder = None

    def __init__(self) -> None:
        self.began, self.gate = threading.Event(), threading.Event()
        self.length = 0
        self.taken_back = 0

    def open(self, prefix: Sequence[int]) -> Self:
        self.length = len(prefix)
        return self

    def commit(self, token_ids: Sequence[int]) -> None:
        self.length += len(token_ids)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        self.began.set()
        assert self.gate.wait(timeout=PATIENCE_SECONDS)
        return Draft((7,))

    def take_back(self) -> None:
        self.taken_back += 1


async def answer_of(session: DraftSession) -> proposer_pb2.DraftResponse:
    response = await session.next_response()
    assert response is not None, "the session ended"
    return response


async def test_what_was_cancelled_before_its_draft_is_answered_as_cancelled() -> None:
    session = DraftSession(served(NgramProposer()), OPENING, memory())
    for block_id in (1, 2, 3):
        session.accept(proposal(block_id, 11 + block_id, committed_token_ids=[1] * (block_id > 1)))
    session.accept(cancel(2))
    session.end()
    answers = [await answer_of(session) for _ in range(3)]
    assert await session.next_response() is None
    assert [answer.status for answer in answers] == [
        proposer_pb2.DRAFT_STATUS_CANCELLED,
        proposer_pb2.DRAFT_STATUS_CANCELLED,
        proposer_pb2.DRAFT_STATUS_DRAFTED,
    ]
    # The tokens of what was cancelled are part of the history.
    assert [answer.base_length for answer in answers] == [12, 13, 14]


async def test_a_heavy_model_leaves_the_loop_free_and_hears_of_cancels_meanwhile() -> None:
    model, worker = HeavyProposer(), ModelWorker("heavy")
    session = DraftSession(served(model, worker.run), OPENING, memory())
    session.accept(proposal(1))
    session.accept(proposal(2))
    answering = asyncio.create_task(answer_of(session))
    await asyncio.to_thread(model.began.wait)
    # The draft runs, and the loop is here to take this.
    session.accept(cancel(2))
    assert model.taken_back == 1
    model.gate.set()
    assert (await answering).status == proposer_pb2.DRAFT_STATUS_DRAFTED
    assert (await answer_of(session)).status == proposer_pb2.DRAFT_STATUS_CANCELLED
    # Nothing is drafted now, and then what nobody took back.
    session.accept(cancel(2))
    model.began.clear()
    session.accept(proposal(3))
    answering = asyncio.create_task(answer_of(session))
    await asyncio.to_thread(model.began.wait)
    session.accept(cancel(2))
    assert model.taken_back == 1
    await answering
    await worker.close()


async def test_a_failure_ends_the_stream_before_what_waits() -> None:
    session = DraftSession(served(NgramProposer()), OPENING, memory())
    session.accept(proposal(1))
    session.fail(RuntimeError("leaving"))
    with pytest.raises(RuntimeError, match="leaving"):
        await session.next_response()


async def test_a_flood_of_proposals_is_refused() -> None:
    session = DraftSession(served(NgramProposer()), OPENING, memory())
    most = DraftLimits().waiting_proposals
    for block_id in range(1, most + 1):
        session.accept(proposal(block_id))
    with pytest.raises(BadParameters, match="wait"):
        session.accept(proposal(most + 1))


async def test_no_proposal_has_more_than_a_session_can_mean() -> None:
    short = DraftLimits(history_tokens=100)
    session = DraftSession(served(NgramProposer()), OPENING, memory(short))
    session.accept(proposal(1, committed_token_ids=[1] * 88))
    with pytest.raises(BadParameters) as refused:
        session.accept(proposal(2, committed_token_ids=[1]))
    assert refused.value.metadata["field"] == "committed_token_ids"
    with pytest.raises(BadParameters) as refused:
        session.accept(proposal(2, assumed_token_ids=[1] * (MAX_ASSUMED + 1)))
    assert refused.value.metadata["field"] == "assumed_token_ids"
    with pytest.raises(BadParameters):
        DraftSession(served(NgramProposer()), opening_with([1] * 101), memory(short))


class Given(EagerDraftState):
    """Notes what it is given; drafts the length of its history."""

    model_id = "m"
    info = ProposerInfo("m", "autoregressive", given_history_tokens=100)
    encoder = None

    def __init__(self) -> None:
        self.length = 0
        self.taken: list[tuple[int, int, list[list[float]]]] = []

    def open(self, prefix: Sequence[int]) -> Self:
        self.length = len(prefix)
        return self

    def commit(self, token_ids: Sequence[int]) -> None:
        self.length += len(token_ids)

    def take_keys_values(self, first: int, count: int, numbers: KeysValues) -> None:
        self.taken.append((first, count, [as_float32(each).tolist() for each in numbers]))

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        return Draft((self.length,))


def history(block_id: int, base_length: int, **fields: Any) -> proposer_pb2.DraftRequest:
    told: dict[str, Any] = {
        "committed_token_ids": [5, 6],
        "keys_values": [np.arange(4, dtype="<f4").tobytes(), np.ones(2, "<f4").tobytes()],
        "dtype": "float32",
        **fields,
    }
    return proposer_pb2.DraftRequest(
        history=proposer_pb2.DraftHistory(block_id=block_id, base_length=base_length, **told)
    )


async def test_what_is_given_is_taken_in_the_order_of_the_stream() -> None:
    proposer = Given()
    session = DraftSession(served(proposer, given_history_tokens=100), OPENING, memory())
    halves = history_to_wire(2, 16, [7, 8], (np.array([0x3F80, 0xC000], np.uint16),))
    for request in (
        history(1, 14),
        halves,
        proposal(3, 16),
    ):
        session.accept(request)
    for block_id, base_length in ((1, 14), (2, 16)):
        response = await answer_of(session)
        assert (response.block_id, response.base_length) == (block_id, base_length)
        assert (response.status, list(response.token_ids)) == (TAKEN, [])
    assert proposer.taken == [(12, 2, [[0.0, 1.0, 2.0, 3.0], [1.0, 1.0]]), (14, 2, [[1.0, -2.0]])]
    assert list((await answer_of(session)).token_ids) == [16]


async def test_what_was_taken_back_is_committed_and_what_does_not_fit_is_stale() -> None:
    proposer = Given()
    session = DraftSession(served(proposer, given_history_tokens=100), OPENING, memory())
    for request in (history(1, 14), cancel(1), history(2, 17)):
        session.accept(request)
    assert (await answer_of(session)).status == TAKEN
    assert (proposer.length, len(proposer.taken)) == (14, 1)
    stale = await answer_of(session)
    assert (stale.status, stale.base_length) == (proposer_pb2.DRAFT_STATUS_STALE, 14)
    assert (proposer.length, len(proposer.taken)) == (14, 1)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (history(1, 101), "base_length"),
        (history(1, 14, committed_token_ids=[]), "committed_token_ids"),
        (history(2, 14), "block_id"),
    ],
)
async def test_a_history_that_cannot_be_is_refused_at_once(
    request_: proposer_pb2.DraftRequest, field: str
) -> None:
    session = DraftSession(served(Given(), given_history_tokens=100), OPENING, memory())
    with pytest.raises(BadParameters) as refused:
        session.accept(request_)
    assert refused.value.metadata["field"] == field


async def test_unknown_ids_and_numbers_are_refused() -> None:
    session = DraftSession(served(Given(), given_history_tokens=100), OPENING, memory())
    with pytest.raises(TokenOutOfVocabulary):
        session.accept(history(1, 14, committed_token_ids=[5, 96]))
    for fields, field in (
        ({"dtype": "float16"}, "dtype"),
        ({"dtype": ""}, "dtype"),
        ({"keys_values": [b"12345"]}, "keys_values"),
    ):
        session = DraftSession(served(Given(), given_history_tokens=100), OPENING, memory())
        session.accept(history(1, 14, **fields))
        with pytest.raises(BadParameters) as refused:
            await session.next_response()
        assert refused.value.metadata["field"] == field


async def test_who_takes_none_says_so() -> None:
    session = DraftSession(served(Given()), OPENING, memory())
    with pytest.raises(BadParameters, match="m takes no keys and values"):
        session.accept(history(1, 14))


async def test_bytes_that_wait_to_be_taken_are_bounded() -> None:
    limits = DraftLimits(waiting_bytes=4 * MESSAGE_BYTES)
    session = DraftSession(served(Given(), given_history_tokens=100), OPENING, memory(limits))
    session.accept(history(1, 14, keys_values=[bytes(2 * MESSAGE_BYTES)]))
    with pytest.raises(TooManyStreams):
        session.accept(history(2, 16, keys_values=[bytes(2 * MESSAGE_BYTES)]))
    await session.next_response()
    session = DraftSession(served(Given(), given_history_tokens=100), OPENING, memory(limits))
    session.accept(history(1, 14, keys_values=[bytes(2 * MESSAGE_BYTES)]))


async def test_streams_share_the_bytes_of_what_waits_and_of_what_they_keep() -> None:
    limits = DraftLimits(waiting_bytes=5 * MESSAGE_BYTES, history_bytes=50 * KEPT_ID_BYTES)
    memories = DraftMemories(allowances_of(drafts=limits))
    lookup = served(NgramProposer())
    with memories.of(Caller("10.0.0.1")) as first:
        session = DraftSession(lookup, OPENING, first)
        for block_id in range(1, 4):
            session.accept(proposal(block_id))
        with pytest.raises(TooManyStreams):
            session.accept(proposal(4, committed_token_ids=[1] * 12))
        # A block that is answered gives its place back.
        await session.next_response()
        assert first.waiting.amount == 2 * MESSAGE_BYTES
        with pytest.raises(TooManyStreams):
            DraftSession(lookup, opening_with([1] * 41), first)
    with memories.of(Caller("10.0.0.1")) as again:
        assert again.history.amount == again.waiting.amount == 0
        DraftSession(lookup, opening_with([1] * 40), again)


async def test_the_longest_honest_history_is_kept() -> None:
    session = DraftSession(served(NgramProposer()), opening_with([1] * 131_072), memory())
    session.accept(proposal(1, 131_072 + 64, committed_token_ids=[1] * 64))


@pytest.mark.parametrize(
    ("own", "theirs", "fits"),
    [("", "a", True), ("a", "a", True), ("a", "b", False), ("a", "", False)],
)
async def test_the_tokenizers_must_be_equal_unless_any_will_do(
    own: str, theirs: str, fits: bool
) -> None:
    opening = proposer_pb2.DraftOpen(vocabulary_size=9, tokenizer_digest=theirs)
    proposer = served(NgramProposer(), tokenizer_digest=own)
    if fits:
        DraftSession(proposer, opening, memory())
    else:
        with pytest.raises(TokenizerDiffers):
            DraftSession(proposer, opening, memory())


class ThreadNoting(EagerDraftState):
    """A proposer that notes the thread of every step."""

    model_id = "m"
    info = ProposerInfo("m", "ngram")
    encoder = None

    def __init__(self) -> None:
        self.steps: list[tuple[str, bool]] = []
        self.length = 0

    def _note(self, what: str) -> None:
        self.steps.append((what, threading.current_thread() is threading.main_thread()))

    def open(self, prefix: Sequence[int]) -> Self:
        self.commit(prefix)
        self._note("open")
        return self

    def commit(self, token_ids: Sequence[int]) -> None:
        self.length += len(token_ids)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        self._note("propose")
        return Draft((7,))


@pytest.mark.parametrize(("count", "on_the_loop"), [(512, True), (513, False)])
async def test_what_takes_in_many_tokens_leaves_the_event_loop(
    count: int, on_the_loop: bool
) -> None:
    proposer = ThreadNoting()
    lookup = ServedProposer(proposer, served(proposer).offer, run_inline, run_in_thread)
    session = DraftSession(lookup, OPENING, memory())
    await session.open()
    session.accept(proposal(1, 12 + count, committed_token_ids=[1] * count))
    await session.next_response()
    assert proposer.steps[-1] == ("propose", on_the_loop)

    proposer.steps.clear()
    await propose_once(lookup, [1] * count, 2, 0)
    assert proposer.steps == [("open", on_the_loop), ("propose", on_the_loop)]

    proposer.length = 0
    proposer.steps.clear()
    await LocalDraftSource(proposer, lookup.runner).draft([1] * count, (), 1)
    assert proposer.steps == [("open", on_the_loop), ("propose", on_the_loop)]

    proposer.steps.clear()
    await DraftSession(lookup, opening_with([1] * count), memory()).open()
    assert proposer.steps == [("open", on_the_loop)]


def opening_with(prefix: Sequence[int]) -> proposer_pb2.DraftOpen:
    return proposer_pb2.DraftOpen(model_id="m", vocabulary_size=96, prefix_token_ids=prefix)


async def test_a_step_in_a_thread_is_waited_for_by_its_cancelled_caller() -> None:
    began, gate = threading.Event(), threading.Event()

    def step() -> None:
        began.set()
        assert gate.wait(timeout=PATIENCE_SECONDS)
        ended.append(True)

    ended: list[bool] = []
    running = asyncio.create_task(run_in_thread(step))
    await asyncio.to_thread(began.wait)
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended


async def test_a_caller_who_leaves_while_its_stream_opens_leaves_nothing_behind() -> None:
    """Otherwise each such stream would keep its history and index for ever."""

    class Gone:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:9"

        async def send_initial_metadata(self, _metadata: object) -> Never:
            raise asyncio.CancelledError

    async def requests() -> AsyncIterator[proposer_pb2.DraftRequest]:
        yield proposer_pb2.DraftRequest(open=OPENING)

    proposer = NgramProposer()
    lookup = served(proposer)
    servicer = ProposerServicer({"m": lookup}, NodeMetrics(), allowances_of())
    with pytest.raises(asyncio.CancelledError):
        # All that is asked of it before the stream is open.
        await servicer.Draft(requests(), cast("Context", Gone()))
    assert servicer.stream_count == 0
    assert not servicer._sessions

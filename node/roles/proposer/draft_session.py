"""The proposer's side of one draft stream: proposals in, blocks out, in order."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

from kakeya.v1 import proposer_pb2 as wire
from kakeya_fleet.engine.contracts.draft import (
    MAX_BLOCK_SIZE,
    ConditionedDraftState,
    Draft,
    DraftState,
)
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.errors import (
    BadParameters,
    DraftFailed,
    DraftFaultKind,
    TokenOutOfVocabulary,
)
from kakeya_fleet.engine.proposers.catching_up import CatchingUp
from kakeya_fleet.engine.proposers.shared_forwards import Forwarding
from kakeya_fleet.node.links.features.feature_inbox import FeatureInbox
from kakeya_fleet.node.roles.proposer.draft_memory import DraftMemory
from kakeya_fleet.node.roles.proposer.drawing_wire import drawing_of
from kakeya_fleet.node.roles.proposer.history_wire import numbers_of
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.rpc.refusals import TokenizerDiffers

# Longest wait for context vectors that are on their way while their proposal is here.
FEATURE_WAIT_SECONDS = 0.05

FindInbox = Callable[[str], FeatureInbox | None]
"""The inbox of an open feature link."""


def no_inbox(_link_id: str) -> FeatureInbox | None:
    """No link is open."""
    return None


Asked: TypeAlias = "wire.DraftProposal | wire.DraftHistory"
"""What is answered by a block, in order."""

_Vectors = tuple[int, ContextVectors]
"""Context vectors, and the position of the first."""


class DraftSession:
    """The history of one stream, and the proposals that wait for a block.

    One task calls `accept` with each message in the order of the stream,
    another one `next_response`. With a proposer that takes context vectors, those
    that arrived on the stream's link are handed to it before each draft; one whose
    vectors are not there in time is answered with FEATURES_MISSING.
    """

    def __init__(
        self,
        served: ServedProposer,
        opening: wire.DraftOpen,
        memory: DraftMemory,
        find_inbox: FindInbox = no_inbox,
    ) -> None:
        """Raises as `check_opening`, and `TooManyStreams`; `memory` is the stream's alone."""
        check_opening(served, opening)
        self._memory = memory
        self._told_length = memory.keep(0, len(opening.prefix_token_ids), "prefix_token_ids")
        self._served = served
        self._steps = served.steps()
        self._find_inbox = find_inbox
        self._link_id = opening.feature_link_id
        self._vocabulary_size = _vocabulary_size(served, opening)
        self._prefix = list(opening.prefix_token_ids)
        self._state: DraftState | None = None
        self._catching_up = CatchingUp()
        self._last_block_id = 0
        self._cancelled_through = 0
        self._drafting_id = 0
        """Of the block that is being drafted; 0 for none."""
        self._waiting: deque[Asked] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None

    async def open(self) -> None:
        """Takes in the prefix, and begins to read it where that takes a model's time."""
        state = await self._served.runner(len(self._prefix))(self._opened)
        if state.is_behind:
            self._catching_up.begin(state, self._served.run_long)

    async def close(self) -> None:
        """Gives back what its state holds. Nobody waits for an answer any more."""
        await self._catching_up.close()
        if self._state is not None:
            self._state.close()

    def accept(self, request: wire.DraftRequest) -> None:
        """Takes a proposal, a history or a cancel.

        Raises `BadParameters`, `TokenOutOfVocabulary`, `TooManyStreams`.
        """
        kind = request.WhichOneof("kind")
        if kind == "proposal":
            check_block_size(request.proposal.block_size)
            drawing_of(request.proposal)
            self._await(request.proposal)
        elif kind == "history":
            self._check_given(request.history)
            self._await(request.history)
        elif kind == "cancel":
            through = min(request.cancel.through_block_id, self._last_block_id)
            self._cancelled_through = max(self._cancelled_through, through)
            if self._state is not None and 0 < self._drafting_id <= through:
                self._state.take_back()
        else:
            raise BadParameters(
                "a draft stream takes proposals, histories and cancels after its opening, not"
                f" {kind}",
                field="kind",
            )
        self._changed.set()

    def end(self) -> None:
        """No more messages will come; what waits is still answered."""
        self._ended = True
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """Ends the stream with an error, whatever waits."""
        self._failure = error
        self._changed.set()

    async def next_response(self) -> wire.DraftResponse | None:
        """The answer to the oldest proposal that waits; None after the last one.

        Raises what `fail` was given.
        """
        while self._failure is None:
            if self._waiting:
                asked = self._waiting.popleft()
                try:
                    return await self._answered(asked)
                finally:
                    self._memory.answered(asked)
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        raise self._failure

    async def _answered(self, asked: Asked) -> wire.DraftResponse:
        reads = self._catching_up.is_under_way
        if isinstance(asked, wire.DraftHistory):
            if reads:
                return self._taken(asked)
            run = self._served.runner(len(asked.committed_token_ids))
            return await run(partial(self._given, asked))
        if reads:
            # Nothing is drafted, at once: its verifier decodes alone meanwhile.
            return self._committed(self._opened(), asked)
        response = await self._drafted(asked)
        if not response.token_ids and self._opened().is_behind:
            self._catching_up.begin(self._opened(), self._served.run_long)
        return response

    async def _drafted(self, proposal: wire.DraftProposal) -> wire.DraftResponse:
        features = await self._arrived(proposal)
        taken_in = max(
            len(proposal.committed_token_ids) + len(proposal.assumed_token_ids),
            len(features[1]) if features is not None else 0,
        )
        self._drafting_id = proposal.block_id
        try:
            return await self._steps.run(self._answering(proposal, features), taken_in)
        finally:
            self._drafting_id = 0

    def _await(self, asked: Asked) -> None:
        """Has it wait for its turn, once it is checked."""
        most = self._memory.limits.waiting_proposals
        if len(self._waiting) >= most:
            raise BadParameters(
                f"{most} proposals wait for their blocks; read them first", field="proposal"
            )
        if asked.block_id != self._last_block_id + 1:
            raise BadParameters(
                f"block_id is {asked.block_id}; it must rise by one from {self._last_block_id}",
                field="block_id",
            )
        check_ids(asked.committed_token_ids, self._vocabulary_size)
        if isinstance(asked, wire.DraftProposal):
            check_ids(asked.assumed_token_ids, self._vocabulary_size)
        longest = self._memory.limits.history_tokens
        if asked.base_length > longest:
            raise BadParameters(
                f"base_length is {asked.base_length}; a stream holds {longest}",
                field="base_length",
            )
        # Also of what is answered as stale: its tokens were sent all the same.
        self._told_length = self._memory.keep(
            self._told_length, len(asked.committed_token_ids), "committed_token_ids"
        )
        self._memory.await_block(asked)
        self._last_block_id = asked.block_id
        self._waiting.append(asked)

    def _check_given(self, history: wire.DraftHistory) -> None:
        """Raises `BadParameters` for what this proposer does not take."""
        offer = self._served.offer
        if not offer.given_history_tokens:
            raise BadParameters(
                f"{offer.model_id} takes no keys and values; send the tokens with a proposal",
                field="history",
            )
        if history.base_length > offer.given_history_tokens:
            raise BadParameters(
                f"base_length is {history.base_length}; {offer.model_id} takes keys and values of"
                f" histories of up to {offer.given_history_tokens} tokens",
                field="base_length",
            )
        if not history.committed_token_ids:
            raise BadParameters(
                "committed_token_ids is empty; it must hold at least one id",
                field="committed_token_ids",
            )

    async def _arrived(self, proposal: wire.DraftProposal) -> _Vectors | None:
        """The context vectors that the proposal needs and the state has not got.

        Waits for those that are on their way; never in the proposer's thread.
        """
        if self._served.proposer.encoder is None:
            return None
        inbox = self._find_inbox(self._link_id)
        if inbox is None:
            return None
        # The last token has been through no forward of the verifier yet.
        end = max(0, proposal.base_length - 1)
        if inbox.end < end and proposal.block_id > self._cancelled_through:
            await inbox.wait(end, FEATURE_WAIT_SECONDS)
        # No step of the state runs now.
        known = _conditioned(self._state).features_end if self._state is not None else 0
        return inbox.between(known, end)

    def _answering(
        self, proposal: wire.DraftProposal, features: _Vectors | None
    ) -> Forwarding[wire.DraftResponse]:
        """Runs where the proposer's steps run."""
        state = self._opened()
        response = self._committed(state, proposal)
        if response.status != wire.DRAFT_STATUS_DRAFTED:
            return response
        started = time.perf_counter()
        try:
            if features is not None:
                _conditioned(state).take_features(*features)
            draft = yield from self._steps.drafting(
                state,
                tuple(proposal.assumed_token_ids),
                proposal.block_size,
                proposal.step_count,
                drawing_of(proposal),
            )
        except DraftFailed as failed:
            if failed.kind is not DraftFaultKind.FEATURES:
                raise
            response.status = wire.DRAFT_STATUS_FEATURES_MISSING
            if self._served.proposer.encoder is not None:
                response.features_end = _conditioned(state).features_end
            return response
        response.token_ids.extend(draft.token_ids)
        response.diffusion_step_count = draft.diffusion_step_count
        response.forward_pass_count = draft.forward_pass_count
        response.compute_seconds = time.perf_counter() - started
        return response

    def _given(self, history: wire.DraftHistory) -> wire.DraftResponse:
        """Takes its keys and values too. Runs where the proposer's steps run."""
        state = self._opened()
        first = state.length
        response = self._taken(history)
        if response.status == wire.DRAFT_STATUS_TAKEN:
            count = len(history.committed_token_ids)
            state.take_keys_values(first, count, numbers_of(history))
        return response

    def _taken(self, history: wire.DraftHistory) -> wire.DraftResponse:
        """Takes its tokens in; what is cancelled is committed all the same."""
        response = self._committed(self._opened(), history)
        if response.status != wire.DRAFT_STATUS_STALE:
            response.status = wire.DRAFT_STATUS_TAKEN
        return response

    def _committed(self, state: DraftState, proposal: Asked) -> wire.DraftResponse:
        """Takes its committed tokens in; the answer, DRAFTED without tokens where it is wanted."""
        response = wire.DraftResponse(block_id=proposal.block_id)
        if state.length + len(proposal.committed_token_ids) != proposal.base_length:
            response.status = wire.DRAFT_STATUS_STALE
            response.base_length = state.length
            return response
        # A cancelled proposal's tokens are committed all the same: the next
        # proposal carries only what came after them.
        state.commit(proposal.committed_token_ids)
        response.base_length = state.length
        is_wanted = proposal.block_id > self._cancelled_through
        response.status = wire.DRAFT_STATUS_DRAFTED if is_wanted else wire.DRAFT_STATUS_CANCELLED
        return response

    def _opened(self) -> DraftState:
        if self._state is None:
            self._state = self._served.proposer.open(self._prefix)
            self._prefix = []
        return self._state


def _conditioned(state: DraftState) -> ConditionedDraftState:
    """The state of a proposer with an encoder; to ask the protocol takes 20 us."""
    return cast(ConditionedDraftState, state)


async def propose_once(
    served: ServedProposer, committed: Sequence[int], block_size: int, step_count: int
) -> tuple[Draft, float]:
    """One block after a whole history, and the seconds that drafting took."""

    def run() -> tuple[Draft, float]:
        started = time.perf_counter()
        state = served.proposer.open(committed)
        try:
            while state.is_behind:
                state.read()
            draft = state.propose((), block_size, step_count)
        finally:
            state.close()
        return draft, time.perf_counter() - started

    return await served.runner(len(committed))(run)


def check_opening(served: ServedProposer, opening: wire.DraftOpen) -> None:
    """Raises `BadParameters`, `TokenizerDiffers` or `TokenOutOfVocabulary`."""
    offer = served.offer
    if opening.vocabulary_size < 1:
        raise BadParameters("vocabulary_size is 0; it must be at least 1", field="vocabulary_size")
    if offer.tokenizer_digest and offer.tokenizer_digest != opening.tokenizer_digest:
        raise TokenizerDiffers(
            f"{offer.model_id} drafts ids of another tokenizer than the verifier's",
            field="tokenizer_digest",
            proposer_tokenizer_digest=offer.tokenizer_digest,
        )
    if served.proposer.encoder is not None and not opening.feature_link_id:
        raise BadParameters(
            f"{offer.model_id} drafts from context vectors; open a link for them first",
            field="feature_link_id",
        )
    check_ids(opening.prefix_token_ids, _vocabulary_size(served, opening))


def _vocabulary_size(served: ServedProposer, opening: wire.DraftOpen) -> int:
    """Ids that both sides know: some models have more rows than their tokenizer has ids."""
    return min(opening.vocabulary_size, served.offer.vocabulary_size or opening.vocabulary_size)


def check_block_size(block_size: int) -> None:
    """Raises `BadParameters` outside 1 to 64."""
    if not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise BadParameters(
            f"block_size is {block_size}; it must be 1 to {MAX_BLOCK_SIZE}", field="block_size"
        )


def check_ids(token_ids: Sequence[int], vocabulary_size: int) -> None:
    """Raises `TokenOutOfVocabulary` for an id at or above `vocabulary_size`."""
    largest = max(token_ids, default=0)
    if largest >= vocabulary_size:
        raise TokenOutOfVocabulary(
            f"token id {largest} is not below the vocabulary size {vocabulary_size}",
            token_id=str(largest),
            vocabulary_size=str(vocabulary_size),
        )

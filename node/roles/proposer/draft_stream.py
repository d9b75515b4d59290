"""One draft stream as the verifier's side sees it.

Proposals are answered in their order. A task writes, a task reads; a proposal
waits on a future that the reader resolves. The first fault of the stream
itself breaks it: every waiting proposal fails, and nobody uses it again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc
import grpc.aio

from kakeya.v1 import proposer_pb2 as wire
from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.node.roles.proposer.drawing_wire import drawing_to_wire
from kakeya_fleet.node.roles.proposer.history_wire import history_to_wire

# Proposals without an answer. The speculative loop keeps two in flight; a
# proposer that answers none must not make the list grow.
MAX_UNANSWERED = 64

DraftCall: TypeAlias = grpc.aio.StreamStreamCall[wire.DraftRequest, wire.DraftResponse]


@dataclass(slots=True)
class PendingDraft:
    """A proposal on its way, or what is given, of `block_size` 0.

    `answer` is cancelled when nobody wants it any more.
    """

    block_id: int
    base_length: int
    block_size: int
    started: float
    answer: asyncio.Future[Draft]


def _nothing_to_send(_features_end: int) -> None:
    return


class DraftStream:
    """One call of ProposerService.Draft for one session's history."""

    def __init__(
        self,
        call: DraftCall,
        opening: wire.DraftOpen,
        *,
        open_timeout: float,
        observe: Callable[[float], None],
        features_missing: Callable[[int], None] = _nothing_to_send,
    ) -> None:
        """`observe` takes each draft's round trip in seconds.

        `features_missing` hears up to which position the proposer has context
        vectors whenever it lacks some.
        """
        self._features_missing = features_missing
        self._call = call
        self._vocabulary_size = opening.vocabulary_size
        self._known_length = len(opening.prefix_token_ids)
        self._feature_link_id = opening.feature_link_id
        self._open_timeout = open_timeout
        self._observe = observe
        self._next_block_id = 1
        self._cancelled_through = 0
        self._waiting: deque[PendingDraft] = deque()
        self._requests: asyncio.Queue[wire.DraftRequest] = asyncio.Queue()
        self._opened = asyncio.Event()
        self._failure: DraftFailed | None = None
        self._tasks = (
            asyncio.create_task(self._write(opening), name="draft-stream-write"),
            asyncio.create_task(self._read(), name="draft-stream-read"),
        )

    @property
    def broken(self) -> bool:
        """Whether the stream can take no more proposals."""
        return self._failure is not None

    @property
    def feature_link_id(self) -> str:
        """The link of the history's context vectors; empty without one."""
        return self._feature_link_id

    @property
    def known_length(self) -> int:
        """Tokens of the history that were sent."""
        return self._known_length

    def propose(
        self,
        history: Sequence[int],
        assumed: Sequence[int],
        block_size: int,
        drawing: Drawing | None = None,
    ) -> PendingDraft:
        """Sends what was committed since the last proposal, and asks for a block."""
        committed = history[self._known_length :]
        pending = self._pending(len(history), block_size)
        if not pending.answer.done():
            proposal = wire.DraftProposal(
                block_id=pending.block_id,
                committed_token_ids=committed,
                base_length=pending.base_length,
                assumed_token_ids=assumed,
                block_size=block_size,
                drawing=None if drawing is None else drawing_to_wire(drawing),
            )
            self._requests.put_nowait(wire.DraftRequest(proposal=proposal))
        return pending

    def give(self, token_ids: Sequence[int], numbers: KeysValues) -> PendingDraft:
        """Sends what was committed next, with its keys and values; answered without tokens."""
        pending = self._pending(self._known_length + len(token_ids), 0)
        if not pending.answer.done():
            self._requests.put_nowait(
                history_to_wire(pending.block_id, pending.base_length, token_ids, numbers)
            )
        return pending

    def take_back(self, pending: PendingDraft) -> None:
        """Tells the proposer to forget a proposal that nobody waits for any more."""
        pending.answer.cancel()
        self._send_cancels()

    def _pending(self, base_length: int, block_size: int) -> PendingDraft:
        """What is about to be asked, behind `base_length` tokens; failed on a broken stream."""
        if len(self._waiting) >= MAX_UNANSWERED:
            self._break(DraftFaultKind.UNREACHABLE, "the proposer answers none of its proposals")
        pending = PendingDraft(
            self._next_block_id,
            base_length,
            block_size,
            time.perf_counter(),
            asyncio.get_running_loop().create_future(),
        )
        if self._failure is not None:
            pending.answer.set_exception(self._failure)
            return pending
        self._next_block_id += 1
        self._known_length = base_length
        self._waiting.append(pending)
        return pending

    async def close(self) -> None:
        """Ends the call; proposals in flight fail with UNREACHABLE."""
        self._break(DraftFaultKind.UNREACHABLE, "the draft stream was closed")
        for task in self._tasks:
            task.cancel()
        # Nobody may be in a write or a read of it, which would end it.
        self._call.cancel()
        await asyncio.wait(self._tasks)

    def _send_cancels(self) -> None:
        # through_block_id takes back everything before it too, so that only
        # the leading run of unwanted proposals may be named.
        through = 0
        for pending in self._waiting:
            if not pending.answer.cancelled():
                break
            through = pending.block_id
        if through > self._cancelled_through and self._failure is None:
            self._cancelled_through = through
            cancel = wire.DraftCancel(through_block_id=through)
            self._requests.put_nowait(wire.DraftRequest(cancel=cancel))

    async def _write(self, opening: wire.DraftOpen) -> None:
        try:
            await self._call.write(wire.DraftRequest(open=opening))
            # A write that fails because the call was refused makes INTERNAL of the refusal
            # (grpc/grpc issue 36066), so that nobody would hear its reason.
            await self._opened.wait()
            while True:
                await self._call.write(await self._requests.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call has ended; the reader knows why.
            return

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(self._open_timeout):
                await self._call.initial_metadata()
            self._opened.set()
            while isinstance(response := await self._call.read(), wire.DraftResponse):
                self._accept(response)
            self._break(DraftFaultKind.UNREACHABLE, "the proposer ended the draft stream")
        except TimeoutError:
            self._break(
                DraftFaultKind.UNREACHABLE,
                f"the draft stream did not open within {self._open_timeout:g} s",
            )
        except grpc.aio.AioRpcError as error:
            self._break(
                DraftFaultKind.UNREACHABLE,
                f"the draft stream broke with {error.code().name}: {error.details()}",
            )
        except asyncio.CancelledError:
            # Raised by the call when it was cancelled, and by close().
            self._break(DraftFaultKind.UNREACHABLE, "the draft stream was cancelled")
            raise

    def _accept(self, response: wire.DraftResponse) -> None:
        if not self._waiting or self._waiting[0].block_id != response.block_id:
            expected = self._waiting[0].block_id if self._waiting else "none"
            self._break(
                DraftFaultKind.STALE,
                f"the proposer answered proposal {response.block_id}, expected {expected}",
            )
            return
        pending = self._waiting.popleft()
        seconds = time.perf_counter() - pending.started
        if pending.block_size:
            self._observe(seconds)
        if response.status == wire.DRAFT_STATUS_FEATURES_MISSING:
            self._features_missing(response.features_end)
        if not pending.answer.done():
            self._resolve(pending, response, seconds)
        elif response.status == wire.DRAFT_STATUS_STALE:
            self._break(DraftFaultKind.STALE, "the proposer holds another history")
        self._send_cancels()

    def _resolve(self, pending: PendingDraft, response: wire.DraftResponse, seconds: float) -> None:
        failure = self._fault(pending, response)
        if failure is not None:
            pending.answer.set_exception(failure)
            if failure.kind is DraftFaultKind.STALE:
                self._break(DraftFaultKind.STALE, str(failure))
            return
        compute_seconds = response.compute_seconds
        if not math.isfinite(compute_seconds):
            compute_seconds = 0.0
        pending.answer.set_result(
            Draft(
                token_ids=tuple(response.token_ids),
                compute_seconds=min(max(compute_seconds, 0.0), seconds),
                round_trip_seconds=seconds,
                diffusion_step_count=response.diffusion_step_count,
                forward_pass_count=response.forward_pass_count,
            )
        )

    def _fault(self, pending: PendingDraft, response: wire.DraftResponse) -> DraftFailed | None:
        """What is wrong with the answer to a proposal that is still wanted."""
        if response.status == wire.DRAFT_STATUS_FEATURES_MISSING:
            return DraftFailed(
                DraftFaultKind.FEATURES,
                f"the proposer has context vectors up to position {response.features_end} only",
            )
        drafts = pending.block_size > 0
        if response.status != (wire.DRAFT_STATUS_DRAFTED if drafts else wire.DRAFT_STATUS_TAKEN):
            return DraftFailed(
                DraftFaultKind.STALE,
                f"the proposer answered proposal {pending.block_id} with status {response.status}",
            )
        if response.base_length != pending.base_length:
            return DraftFailed(
                DraftFaultKind.STALE,
                f"the draft follows {response.base_length} tokens, not {pending.base_length}",
            )
        if len(response.token_ids) > pending.block_size:
            return DraftFailed(
                DraftFaultKind.WRONG_LENGTH,
                f"{len(response.token_ids)} tokens were drafted, {pending.block_size} asked for",
            )
        if any(token_id >= self._vocabulary_size for token_id in response.token_ids):
            return DraftFailed(
                DraftFaultKind.OUT_OF_VOCABULARY,
                f"a drafted id is not below the vocabulary size {self._vocabulary_size}",
            )
        return None

    def _break(self, kind: DraftFaultKind, message: str) -> None:
        if self._failure is not None:
            return
        self._failure = DraftFailed(kind, message)
        self._call.cancel()
        for pending in self._waiting:
            if not pending.answer.done():
                pending.answer.set_exception(DraftFailed(kind, message))
        self._waiting.clear()

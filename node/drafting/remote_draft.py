"""Drafts from a proposer on another node, over its draft stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import grpc.aio

from engine.errors import DraftFailed, DraftFaultKind
from engine.proposers.contract import Draft
from kakeya.v1 import proposer_pb2 as wire
from kakeya.v1 import proposer_pb2_grpc
from node.drafting.draft_stream import DraftStream

# A proposer that is there answers an open within its connect and one round
# trip; a frozen one would hold the call for ever.
OPEN_TIMEOUT_SECONDS = 2.0


def _ignore(_seconds: float) -> None:
    return


class RemoteDraftSource:
    """A `DraftSource` over ProposerService.Draft: one stream for one session.

    The stream opens at the first draft with the whole history; after that only
    what was committed since crosses the wire. A broken stream fails its drafts
    with UNREACHABLE (STALE when the proposer lost the thread), and the next
    draft opens a new one. `observe` takes each answer's round trip in seconds.
    The channel is the caller's and is never closed here.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        model_id: str,
        vocabulary_size: int,
        tokenizer_digest: str,
        *,
        open_timeout: float = OPEN_TIMEOUT_SECONDS,
        observe: Callable[[float], None] = _ignore,
    ) -> None:
        self._stub = proposer_pb2_grpc.ProposerServiceStub(channel)
        self._model_id = model_id
        self._vocabulary_size = vocabulary_size
        self._tokenizer_digest = tokenizer_digest
        self._open_timeout = open_timeout
        self._observe = observe
        self._stream: DraftStream | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._closed = False

    async def draft(self, history: Sequence[int], assumed: Sequence[int], block_size: int) -> Draft:
        """A draft of at most `block_size` ids that continues `history` + `assumed`.

        Raises `DraftFailed`. A cancelled caller takes its proposal back.
        """
        stream = self._opened(history)
        pending = stream.propose(history, assumed, block_size)
        try:
            return await pending.answer
        except asyncio.CancelledError:
            stream.take_back(pending)
            raise

    def open(self, history: Sequence[int]) -> None:
        """Begins to open the stream ahead of the first draft, if it is not open.

        Waits for nothing; a stream that cannot open fails the next draft.
        """
        with suppress(DraftFailed):
            self._opened(history)

    def rest(self) -> None:
        """Ends the stream, and with it what the proposer keeps; the next draft opens one."""
        self._retire()

    async def close(self) -> None:
        """Ends the stream; drafts in flight fail with UNREACHABLE. May be repeated."""
        self._closed = True
        self._retire()
        if self._retired:
            await asyncio.wait(self._retired)

    def _opened(self, history: Sequence[int]) -> DraftStream:
        if self._closed:
            raise DraftFailed(DraftFaultKind.UNREACHABLE, "the draft source was closed")
        stream = self._stream
        # A history shorter than what the proposer knows is another history.
        if stream is not None and not stream.broken and stream.known_length <= len(history):
            return stream
        self._retire()
        opening = wire.DraftOpen(
            model_id=self._model_id,
            prefix_token_ids=history[:],
            vocabulary_size=self._vocabulary_size,
            tokenizer_digest=self._tokenizer_digest,
        )
        try:
            call = self._stub.Draft()
        except grpc.aio.UsageError as error:
            raise DraftFailed(
                DraftFaultKind.UNREACHABLE, "the channel to the proposer was closed"
            ) from error
        self._stream = DraftStream(
            call, opening, open_timeout=self._open_timeout, observe=self._observe
        )
        return self._stream

    def _retire(self) -> None:
        """Ends the stream in a task of its own: a draft never waits for an old one."""
        if self._stream is None:
            return
        task = asyncio.create_task(self._stream.close(), name="draft-stream-close")
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
        self._stream = None

"""Drafts from a proposer on another node, over its draft stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import grpc.aio

from kakeya.v1 import proposer_pb2 as wire
from kakeya.v1 import proposer_pb2_grpc
from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.proposers.giving import Giving, HistoryGiver
from kakeya_fleet.node.links.features.feature_sender import FeatureSender
from kakeya_fleet.node.roles.proposer.draft_stream import DraftStream
from kakeya_fleet.node.rpc.trace_context import outgoing

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

    With a `sender` the stream opens behind a feature link, and the context vectors
    of what was committed travel before each proposal. A proposer that was started
    anew, or has lost vectors, gets the latest again; a draft that lacks them fails
    with FEATURES. The sender is closed with the source.

    With `giving`, a proposer of the verifier's weights is given what it would have to read.
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
        sender: FeatureSender | None = None,
        giving: Giving | None = None,
    ) -> None:
        self._stub = proposer_pb2_grpc.ProposerServiceStub(channel)
        self._model_id = model_id
        self._vocabulary_size = vocabulary_size
        self._tokenizer_digest = tokenizer_digest
        self._open_timeout = open_timeout
        self._observe = observe
        self._sender = sender
        self._giver = HistoryGiver(giving)
        self._preparing: asyncio.Task[None] | None = None
        self._stream: DraftStream | None = None
        self._retired: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def drafts_ahead(self) -> bool:
        """Whether it can draft behind assumed tokens, of which there are no context vectors."""
        return self._sender is None

    async def draft(
        self,
        history: Sequence[int],
        assumed: Sequence[int],
        block_size: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        """A draft of at most `block_size` ids that continues `history` + `assumed`.

        Raises `DraftFailed`. A cancelled caller takes its proposal back.
        """
        link_id = ""
        if self._sender is not None:
            link_id = await self._sender.link_id()
            # The last token has been through no forward yet.
            self._sender.push(len(history) - 1)
        stream = self._opened(history, link_id)
        coming = block_size + len(assumed)
        put = partial(_put, stream)
        if not await self._giver.given(history, stream.known_length, coming, put):
            return Draft(())
        pending = stream.propose(history, assumed, block_size, drawing)
        try:
            return await pending.answer
        except asyncio.CancelledError:
            stream.take_back(pending)
            raise

    def open(self, history: Sequence[int]) -> None:
        """Begins to open the stream ahead of the first draft, if it is not open.

        Waits for nothing; a stream that cannot open fails the next draft.
        """
        if self._sender is None:
            with suppress(DraftFailed):
                self._opened(history, "")
        elif self._preparing is None:
            self._preparing = asyncio.create_task(
                self._prepare(self._sender, history), name="draft-source-open"
            )

    def rest(self) -> None:
        """Ends the stream, and with it what the proposer keeps; the next draft opens one."""
        self._retire()
        if self._sender is not None:
            self._sender.rest()

    async def close(self) -> None:
        """Ends the stream; drafts in flight fail with UNREACHABLE. May be repeated."""
        self._closed = True
        self._retire()
        preparing = self._preparing
        if preparing is not None:
            preparing.cancel()
            await asyncio.wait((preparing,))
        if self._retired:
            await asyncio.wait(self._retired)
        if self._sender is not None:
            await self._sender.close()

    async def _prepare(self, sender: FeatureSender, history: Sequence[int]) -> None:
        try:
            with suppress(DraftFailed):
                self._opened(history, await sender.link_id())
        finally:
            self._preparing = None

    def _opened(self, history: Sequence[int], link_id: str) -> DraftStream:
        if self._closed:
            raise DraftFailed(DraftFaultKind.UNREACHABLE, "the draft source was closed")
        stream = self._stream
        # A history shorter than what the proposer knows is another history.
        if (
            stream is not None
            and not stream.broken
            and stream.known_length <= len(history)
            and stream.feature_link_id == link_id
        ):
            return stream
        self._retire()
        opening = wire.DraftOpen(
            model_id=self._model_id,
            prefix_token_ids=() if self._giver.gives(len(history)) else history[:],
            vocabulary_size=self._vocabulary_size,
            tokenizer_digest=self._tokenizer_digest,
            feature_link_id=link_id,
        )
        try:
            call = self._stub.Draft(metadata=outgoing())
        except grpc.aio.UsageError as error:
            raise DraftFailed(
                DraftFaultKind.UNREACHABLE, "the channel to the proposer was closed"
            ) from error
        self._stream = DraftStream(
            call,
            opening,
            open_timeout=self._open_timeout,
            observe=self._observe,
            features_missing=self._rewind,
        )
        return self._stream

    def _rewind(self, features_end: int) -> None:
        if self._sender is not None:
            self._sender.rewind(features_end)

    def _retire(self) -> None:
        """Ends the stream in a task of its own: a draft never waits for an old one."""
        self._giver.drop()
        if self._stream is None:
            return
        task = asyncio.create_task(self._stream.close(), name="draft-stream-close")
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)
        self._stream = None


async def _put(stream: DraftStream, token_ids: Sequence[int], numbers: KeysValues) -> None:
    """Waits until the proposer has them. Raises `DraftFailed`."""
    await stream.give(token_ids, numbers).answer

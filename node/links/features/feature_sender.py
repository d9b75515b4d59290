"""The verifier's end of a feature link: what is new travels, once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio

from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.node.admission.limits import LinkEndLimits
from kakeya_fleet.node.links.ends.link_end import LinkEnd, LinkUse
from kakeya_fleet.node.links.features.encoder_fetch import ProposerAddress, opening_request
from kakeya_fleet.node.links.features.feature_inbox import FEATURES
from kakeya_fleet.node.links.protocol.changes import LinkChange
from kakeya_fleet.node.links.protocol.contract import LinkClosed
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, from_floats
from kakeya_fleet.node.links.transport.open_links import OpenLinks

ReadFeatures = Callable[[int], tuple[int, ContextVectors]]
"""Vectors from a position on, and the position of the first; as `SessionFeatures.since`."""

# Small deltas are answered together.
LIMITS = LinkLimits(budget_bytes=LinkEndLimits().vectors_bytes, taken_delay_seconds=0.05)

_REFUSALS = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""What a node that is there answers when it opens no link."""


class FeatureStream:
    """One open link for vectors. The first fault breaks it for good."""

    def __init__(self, end: LinkEnd, dtype: TensorDtype) -> None:
        self._end = end
        self._dtype = dtype
        self._sent_end = 0

    @property
    def link_id(self) -> str:
        """Names the link."""
        return self._end.link_id

    @property
    def broken(self) -> bool:
        """Whether it carries nothing any more."""
        return self._end.ended.is_set()

    @property
    def sent_end(self) -> int:
        """The position behind the last vector that was sent."""
        return self._sent_end

    def rewind(self, end: int) -> None:
        """What lies behind position `end` counts as not sent."""
        self._sent_end = min(self._sent_end, end)

    def send(self, first: int, vectors: ContextVectors) -> None:
        """Sends vectors [n, width] of positions `first` onwards, n >= 1; waits for nothing."""
        tensor = from_floats(FEATURES, vectors, self._dtype, first)
        self._sent_end = first + len(vectors)
        try:
            if not self._end.try_send(tensor):
                self._end.end("the proposer's node takes no vectors")
        except LinkClosed:
            # It is broken; the next draft opens another.
            return

    async def close(self) -> None:
        """Ends the link."""
        await self._end.close()


class FeatureSender:
    """Keeps one session's proposer supplied with context vectors; reopens what broke.

    Belongs to the event loop's thread. A proposer that has lost vectors gets them
    again, as far back as `read` has them.
    """

    def __init__(
        self,
        address: ProposerAddress,
        read: ReadFeatures,
        *,
        open_timeout: float,
        dtype: TensorDtype = TensorDtype.BFLOAT16,
        links: OpenLinks | None = None,
        on_change: Callable[[LinkChange], None] | None = None,
    ) -> None:
        """The link is one of `links`; `on_change` hears of what carries it."""
        self._links = links if links is not None else OpenLinks()
        self._on_change = on_change if on_change is not None else _ignore
        self._address = address
        self._read = read
        self._open_timeout = open_timeout
        self._dtype = dtype
        self._opening = asyncio.Lock()
        self._stream: FeatureStream | None = None
        self._retired: set[asyncio.Task[None]] = set()

    async def link_id(self) -> str:
        """The id of the open link, opened when there is none.

        Raises `DraftFailed` (FEATURES) when the proposer's node refuses one,
        (UNREACHABLE) when it does not answer.
        """
        stream = self._stream
        if stream is not None and not stream.broken:
            return stream.link_id
        async with self._opening:
            if self._stream is not None and not self._stream.broken:
                return self._stream.link_id
            self.rest()
            self._stream = await self._opened()
            return self._stream.link_id

    def push(self, end: int) -> None:
        """Sends what is new below position `end`.

        Raises `DraftFailed` (FEATURES) when this side itself has no vectors up to there.
        """
        stream = self._stream
        if stream is None or stream.broken or stream.sent_end >= end:
            return
        first, vectors = self._read(stream.sent_end)
        if first + len(vectors) < end:
            raise DraftFailed(
                DraftFaultKind.FEATURES,
                f"the session has context vectors up to {first + len(vectors)}, not {end}",
            )
        stream.send(first, vectors[: end - first])

    def rewind(self, end: int) -> None:
        """The proposer knows vectors up to position `end` only."""
        if self._stream is not None:
            self._stream.rewind(end)

    def rest(self) -> None:
        """Ends the link, and with it what the proposer's node keeps; `link_id` opens another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            task = asyncio.create_task(stream.close(), name="feature-link-close")
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        """Ends the link."""
        self.rest()
        if self._retired:
            await asyncio.wait(self._retired)

    async def _opened(self) -> FeatureStream:
        address = self._address
        try:
            opened = await self._links.open(
                address.channel,
                opening_request(address),
                peer_node_id=address.node_id,
                timeout=self._open_timeout,
                use=LinkUse(limits=LIMITS, on_change=self._on_change),
            )
        except (grpc.aio.UsageError, LinkClosed) as error:
            raise DraftFailed(
                DraftFaultKind.UNREACHABLE, f"no feature link opens: {error}"
            ) from error
        except grpc.aio.AioRpcError as error:
            raise DraftFailed(
                DraftFaultKind.FEATURES
                if error.code() in _REFUSALS
                else DraftFaultKind.UNREACHABLE,
                f"no feature link opens: {error.code().name}: {error.details()}",
            ) from error
        return FeatureStream(opened.end, self._dtype)


def _ignore(_change: LinkChange) -> None:
    return

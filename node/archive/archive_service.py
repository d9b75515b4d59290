"""ArchiveService, served in threads: what it computes never holds up the node's event loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import grpc
import structlog

from engine.errors import RestorerRefused
from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import archive_pb2_grpc
from node.archive.archives import Archive, Archives
from node.archive.opening import opening_from_wire
from node.archive.tensor_bytes import deposit_from_wire, partial_to_wire, queries_from_wire
from node.metrics import NodeMetrics
from node.rpc.error_table import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    DomainError,
    error_status,
    internal_status,
    status_code,
)
from node.rpc.refusals import ArchiveFull, MalformedMessage

_DETAILS_KEY = "grpc-status-details-bin"

_log = structlog.get_logger(__name__)


class ArchiveServicer(archive_pb2_grpc.ArchiveServiceServicer):
    """Answers with what the archives keep. A stream has a thread of its own."""

    def __init__(self, archives: Archives, metrics: NodeMetrics) -> None:
        self._archives = archives
        self._metrics = metrics

    def OpenArchive(  # noqa: N802
        self, request: wire.OpenArchiveRequest, context: grpc.ServicerContext
    ) -> wire.OpenArchiveResponse:
        """Admits one session."""
        with self._answering(context):
            archive = self._archives.open(opening_from_wire(request))
            self._count()
            return wire.OpenArchiveResponse(
                archive_id=archive.archive_id,
                lease_seconds=archive.lease_seconds,
                arithmetic=self._archives.arithmetic,
            )

    def CloseArchive(  # noqa: N802
        self, request: wire.CloseArchiveRequest, context: grpc.ServicerContext
    ) -> wire.CloseArchiveResponse:
        """Releases an archive that was never attached."""
        with self._answering(context):
            self._archives.close(request.archive_id)
            self._count()
            return wire.CloseArchiveResponse()

    def UseArchive(  # noqa: N802
        self,
        request_iterator: Iterator[wire.UseArchiveRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[wire.UseArchiveResponse]:
        """Deposits and queries of one session, in their order, until its stream ends."""
        with self._answering(context):
            archive = self._attached(request_iterator, context)
            try:
                yield wire.UseArchiveResponse(
                    attached=wire.ArchiveAttached(length=archive.store.length)
                )
                for request in request_iterator:
                    self._archives.used(archive)
                    response = self._handled(archive, request)
                    if response is not None:
                        yield response
            finally:
                self._archives.release(archive)
                self._count()

    def _attached(
        self, requests: Iterator[wire.UseArchiveRequest], context: grpc.ServicerContext
    ) -> Archive:
        first = next(requests, None)
        if first is None or not first.HasField("attach"):
            raise MalformedMessage("the first message of UseArchive is attach")
        archive = self._archives.attach(first.attach.archive_id)
        archive.on_expiry.append(context.cancel)
        return archive

    def _handled(
        self, archive: Archive, request: wire.UseArchiveRequest
    ) -> wire.UseArchiveResponse | None:
        shape, store = archive.opening.shape, archive.store
        match request.WhichOneof("kind"):
            case "deposit":
                evicted = deposit_from_wire(shape, request.deposit)
                shape.check_deposit(evicted)
                first = request.deposit.first_position
                if first != max(store.length, shape.sink):
                    raise RestorerRefused(
                        f"position {first} does not follow the {store.length} that are kept"
                    )
                if first + request.deposit.position_count > shape.context_length:
                    raise RestorerRefused("positions beyond the longest history")
                self._archives.deposit(archive, first, evicted)
                self._count()
                return None
            case "queries":
                return self._attended(archive, request.queries)
            case "fork":
                return self._forked(archive, request.fork.length)
            case _:
                raise MalformedMessage("a message of UseArchive is a deposit, queries or a fork")

    def _attended(self, archive: Archive, message: wire.EvictedQueries) -> wire.UseArchiveResponse:
        shape, store = archive.opening.shape, archive.store
        began = time.perf_counter()
        asked = queries_from_wire(shape, message)
        shape.check_queries(asked)
        try:
            shape.check_deposited(asked, store.length)
        except ValueError as error:
            raise RestorerRefused(str(error)) from error
        store.begin(asked)
        partial = store.finish()
        seconds = time.perf_counter() - began
        self._metrics.archive_query_seconds.observe(seconds)
        return partial_to_wire(partial, stored_bytes=store.stored_bytes, compute_seconds=seconds)

    def _forked(self, archive: Archive, length: int) -> wire.UseArchiveResponse:
        if length > archive.opening.shape.context_length:
            raise RestorerRefused(f"a fork of {length} positions is longer than any history")
        try:
            forked = self._archives.fork(archive, length)
        except ArchiveFull as error:
            answer = wire.ArchiveForked(
                needed_bytes=int(error.metadata.get("needed_bytes", "0")),
                free_bytes=int(error.metadata.get("free_bytes", "0")),
            )
        else:
            answer = wire.ArchiveForked(archive_id=forked.archive_id, length=forked.store.length)
        self._count()
        return wire.UseArchiveResponse(forked=answer)

    def _count(self) -> None:
        metrics = self._metrics
        metrics.archives_open.set(len(self._archives))
        metrics.archive_bytes.set(self._archives.used_bytes)
        metrics.archive_positions.set(self._archives.positions)

    @contextmanager
    def _answering(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Ends the call with the status of a domain error; anything else is INTERNAL."""
        try:
            yield
        except DOMAIN_ERRORS as error:
            self._metrics.rpc_errors.labels(reason=error.reason).inc()
            _abort(context, error)
        except Exception as error:
            # A stream that its client or a lease has ended raises here too.
            if not context.is_active():
                raise
            self._metrics.rpc_errors.labels(reason=INTERNAL_REASON).inc()
            _log.error("archive_failed", exc_info=error)
            status = internal_status()
            context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
            context.abort(grpc.StatusCode.INTERNAL, status.message)


def _abort(context: grpc.ServicerContext, error: DomainError) -> NoReturn:
    status = error_status(error)
    context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(status_code(error), status.message)

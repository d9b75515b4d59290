"""ArchiveService, served in threads: what it computes never holds up the node's event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import grpc
import structlog

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import archive_pb2_grpc
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_use import ArchiveUse
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.opening import opening_from_wire
from kakeya_fleet.node.roles.archive.tensor_bytes import deposit_of_parts, queries_of
from kakeya_fleet.node.rpc.error_status import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    DomainError,
    error_status,
    internal_status,
    status_code,
)
from kakeya_fleet.node.rpc.refusals import ArchiveFull, MalformedMessage

_DETAILS_KEY = "grpc-status-details-bin"

_log = structlog.get_logger(__name__)


class ArchiveServicer(archive_pb2_grpc.ArchiveServiceServicer):
    """Answers with what the archives keep. A stream has a thread of its own."""

    def __init__(self, archives: Archives, metrics: NodeMetrics, data_port: int) -> None:
        """`data_port` is where the data connections are served."""
        self._archives = archives
        self._metrics = metrics
        self._data_port = data_port

    def OpenArchive(  # noqa: N802
        self, request: wire.OpenArchiveRequest, context: grpc.ServicerContext
    ) -> wire.OpenArchiveResponse:
        """Admits one session."""
        with self._answering(context):
            archive = self._archives.open(opening_from_wire(request))
            return wire.OpenArchiveResponse(
                archive_id=archive.archive_id,
                lease_seconds=archive.lease_seconds,
                arithmetic=self._archives.arithmetic,
                data_port=self._data_port,
                takes_ranges=True,
            )

    def CloseArchive(  # noqa: N802
        self, request: wire.CloseArchiveRequest, context: grpc.ServicerContext
    ) -> wire.CloseArchiveResponse:
        """Releases an archive that was never attached."""
        with self._answering(context):
            self._archives.close(request.archive_id)
            return wire.CloseArchiveResponse()

    def UseArchive(  # noqa: N802
        self,
        request_iterator: Iterator[wire.UseArchiveRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[wire.UseArchiveResponse]:
        """Deposits and queries of one session, in their order, until its stream ends."""
        with self._answering(context):
            use = self._attached(request_iterator, context)
            try:
                yield wire.UseArchiveResponse(attached=wire.ArchiveAttached(length=use.length))
                for request in request_iterator:
                    use.renew()
                    response = _handled(use, request)
                    if response is not None:
                        yield response
            finally:
                use.end()

    def _attached(
        self, requests: Iterator[wire.UseArchiveRequest], context: grpc.ServicerContext
    ) -> ArchiveUse:
        first = next(requests, None)
        if first is None or not first.HasField("attach"):
            raise MalformedMessage("the first message of UseArchive is attach")
        archive = self._archives.attach(first.attach.archive_id)
        use = ArchiveUse(self._archives, archive, self._metrics)
        if use.is_carried_to:
            use.end()
            raise MalformedMessage("an archive of a later range is used over a data connection")
        archive.on_expiry.append(context.cancel)
        return use

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


def _handled(use: ArchiveUse, request: wire.UseArchiveRequest) -> wire.UseArchiveResponse | None:
    match request.WhichOneof("kind"):
        case "deposit":
            told = request.deposit
            evicted = deposit_of_parts(use.shape, told.position_count, told.tensors)
            use.deposit(told.first_position, evicted)
            return None
        case "queries":
            return _attended(use, request.queries)
        case "fork":
            return _forked(use, request.fork.length)
        case _:
            raise MalformedMessage("a message of UseArchive is a deposit, queries or a fork")


def _attended(use: ArchiveUse, asked: wire.EvictedQueries) -> wire.UseArchiveResponse:
    found = use.attend(
        queries_of(
            use.shape,
            asked.layer,
            asked.first_position,
            asked.query_count,
            asked.scaling,
            asked.queries,
        )
    )
    output, total, maximum = (part.tobytes() for part in found.parts)
    use.tell(found.seconds)
    return wire.UseArchiveResponse(
        partial=wire.PartialAttention(
            output=output,
            total=total,
            maximum=maximum,
            stored_bytes=found.stored_bytes,
            compute_seconds=found.seconds,
        )
    )


def _forked(use: ArchiveUse, length: int) -> wire.UseArchiveResponse:
    try:
        forked = use.fork(length)
    except ArchiveFull as error:
        answer = wire.ArchiveForked(
            needed_bytes=int(error.metadata.get("needed_bytes", "0")),
            free_bytes=int(error.metadata.get("free_bytes", "0")),
        )
    else:
        answer = wire.ArchiveForked(archive_id=forked.archive_id, length=forked.store.length)
    return wire.UseArchiveResponse(forked=answer)


def _abort(context: grpc.ServicerContext, error: DomainError) -> NoReturn:
    status = error_status(error)
    context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(status_code(error), status.message)

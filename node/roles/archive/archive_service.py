"""ArchiveService: archives are opened here, and used over data connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import grpc
import structlog

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import archive_pb2_grpc
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_frames import VERSION
from kakeya_fleet.node.roles.archive.opening import opening_from_wire
from kakeya_fleet.node.rpc.calling import calling_of
from kakeya_fleet.node.rpc.error_status import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    DomainError,
    error_status,
    internal_status,
    status_code,
)
from kakeya_fleet.node.rpc.lenient_parsing import check_parsed, lenient
from kakeya_fleet.node.rpc.trace_context import HEADER, TraceContext
from kakeya_fleet.node.trust.tls import member_calling
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.span_ring import Span, SpanRing

_DETAILS_KEY = "grpc-status-details-bin"

_log = structlog.get_logger(__name__)


if TYPE_CHECKING:
    _Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]


class LenientParsing(grpc.ServerInterceptor):
    """Has servicers answer the bytes that are no request."""

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], _Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """The method's handler, with a deserializer that never raises."""
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None or handler.request_deserializer is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            cast("Callable[..., Any]", handler.unary_unary),
            request_deserializer=lenient(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )


class ArchiveServicer(archive_pb2_grpc.ArchiveServiceServicer):
    """Opens archives, in threads: what is loaded for one never holds up the event loop."""

    def __init__(
        self,
        archives: Archives,
        metrics: NodeMetrics,
        data_port: int,
        trust: Trust | None = None,
        spans: SpanRing | None = None,
    ) -> None:
        """`data_port` is where the data connections are served; `spans` gets what is opened.

        With `trust`, an archive belongs to the member that opens it.
        """
        self._archives = archives
        self._metrics = metrics
        self._data_port = data_port
        self._trust = trust
        self._spans = spans

    def OpenArchive(  # noqa: N802
        self, request: wire.OpenArchiveRequest, context: grpc.ServicerContext
    ) -> wire.OpenArchiveResponse:
        """Admits one session."""
        with self._noted(context), self._answering(context):
            owner = self._member(context)
            check_parsed(request)
            archive = self._archives.open(
                opening_from_wire(request), calling_of(context).caller, owner
            )
            return wire.OpenArchiveResponse(
                archive_id=archive.archive_id,
                lease_seconds=archive.lease_seconds,
                arithmetic=self._archives.arithmetic,
                data_port=self._data_port,
                takes_ranges=True,
                data_version=VERSION,
                codec=archive.opening.shape.codec,
            )

    def CloseArchive(  # noqa: N802
        self, request: wire.CloseArchiveRequest, context: grpc.ServicerContext
    ) -> wire.CloseArchiveResponse:
        """Releases an archive that was never attached."""
        with self._answering(context):
            owner = self._member(context)
            check_parsed(request)
            self._archives.close(request.archive_id, owner)
            return wire.CloseArchiveResponse()

    @contextmanager
    def _noted(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Notes the opening as a span of its caller's trace; without one it is nobody's."""
        header = str(dict(context.invocation_metadata()).get(HEADER, ""))
        caller = TraceContext.parse(header)
        began, started = time.time(), time.monotonic()
        try:
            yield
        finally:
            if caller is not None and self._spans is not None:
                span = Span(
                    trace_id=caller.trace_id,
                    span_id=caller.child().span_id,
                    parent_span_id=caller.span_id,
                    name="/kakeya.v1.ArchiveService/OpenArchive",
                    started_at_unix=began,
                    duration_seconds=time.monotonic() - started,
                )
                self._spans.add((span,))

    def _member(self, context: grpc.ServicerContext) -> str:
        """Who calls, empty without an authority. Raises `BadCertificate`."""
        if self._trust is None:
            return ""
        member = member_calling(context.auth_context(), self._trust)
        if member is None:
            # The port asks for certificates; a call without one is a fault of this program.
            raise BadCertificate("the call shows no certificate", "join it with a code")
        return member

    @contextmanager
    def _answering(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Ends the call with the status of a domain error; anything else is INTERNAL."""
        try:
            yield
        except DOMAIN_ERRORS as error:
            self._metrics.rpc_errors.labels(reason=error.reason).inc()
            _abort(context, error)
        except Exception as error:  # noqa: BLE001 - the last resort of a call
            self._metrics.rpc_errors.labels(reason=INTERNAL_REASON).inc()
            _log.error("archive_failed", exc_info=error)
            status = internal_status()
            context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
            context.abort(grpc.StatusCode.INTERNAL, status.message)


def _abort(context: grpc.ServicerContext, error: DomainError) -> NoReturn:
    status = error_status(error)
    context.set_trailing_metadata(((_DETAILS_KEY, status.SerializeToString()),))
    context.abort(status_code(error), status.message)

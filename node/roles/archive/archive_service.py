"""ArchiveService: archives are opened here, and used over data connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import grpc
import structlog

from kakeya.v1 import archive_pb2 as wire
from kakeya.v1 import archive_pb2_grpc
from kakeya_fleet.node.admission.caller import caller_of_peer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.opening import opening_from_wire
from kakeya_fleet.node.rpc.error_status import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    DomainError,
    error_status,
    internal_status,
    status_code,
)

_DETAILS_KEY = "grpc-status-details-bin"

_log = structlog.get_logger(__name__)


class ArchiveServicer(archive_pb2_grpc.ArchiveServiceServicer):
    """Opens archives, in threads: what is loaded for one never holds up the event loop."""

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
            archive = self._archives.open(
                opening_from_wire(request), caller_of_peer(context.peer())
            )
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

"""What aiohttp's server logs here: the faults of this node, not those of its callers."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

OF_CALLERS = (HttpProcessingError, web.RequestPayloadError, ConnectionResetError)
"""A head that is no HTTP/1.1, a body that is not what its head says, and who has gone."""


def server_log() -> logging.Logger:
    """A logger without a traceback for each caller that does not speak HTTP/1.1, or that leaves.

    Those that do not are answered with 400. Another node that was given this port as its peer
    is one of them, once a second.
    """
    logger = logging.getLogger("kakeya.http")
    logger.addFilter(_is_own_fault)
    return logger


def _is_own_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, OF_CALLERS)

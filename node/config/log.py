"""Structured logs on standard error: one line an event, JSON or for a terminal.

Events are named in snake_case, facts are keyword arguments. An expected error
is one line with its reason; only what nobody foresaw carries its traceback, as
one escaped string in the JSON format.
"""

from __future__ import annotations

import logging
import sys

import structlog

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_log(level: str, log_format: str, *, node_name: str) -> None:
    """Sets up the process's log. `log_format` is json, console, or auto (by terminal)."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderers: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(node=node_name)
    # gRPC and zeroconf speak of each lost peer with a traceback; the node's own
    # events say the same in a line.
    for library in ("grpc", "grpc._cython.cygrpc", "zeroconf", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)

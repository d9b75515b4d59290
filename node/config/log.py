"""Structured logs on standard error or in a file: one line an event, JSON or for a terminal.

Events are named in snake_case, facts are keyword arguments. An expected error
is one line with its reason; only what nobody foresaw carries its traceback, as
one escaped string in the JSON format. No traceback tells values: they are people's texts and keys.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from kakeya_fleet.node.config.log_file import LogFile

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_log(
    level: str, log_format: str, *, node_name: str, file: LogFile | None = None
) -> None:
    """Sets up the process's log, on standard error unless there is a `file`.

    `log_format` is json, console, or auto: console on a terminal.
    """
    on_terminal = file is None and sys.stderr.isatty()
    console = log_format == "console" or (log_format == "auto" and on_terminal)
    renderers: list[structlog.typing.Processor] = (
        [_console(colors=on_terminal)]
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
        logger_factory=_factory(file),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(node=node_name)
    # gRPC and zeroconf speak of each lost peer with a traceback; the node's own
    # events say the same in a line.
    for library in ("grpc", "grpc._cython.cygrpc", "zeroconf", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def _console(*, colors: bool) -> structlog.dev.ConsoleRenderer:
    # By default, where rich is installed, tracebacks show each frame's variables: prompts among
    # them, and of large ones it takes seconds in the thread that failed.
    plain = structlog.dev.plain_traceback
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)


def _factory(file: LogFile | None) -> Callable[..., object]:
    if file is None:
        return structlog.WriteLoggerFactory(file=sys.stderr)
    return lambda *_: file.logger

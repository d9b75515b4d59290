"""Refusals of HTTP: a status, and OpenAI's envelope around this fleet's reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from kakeya.errors import (
    BadRequest,
    ContextExceeded,
    DeadlineExceeded,
    EmptyAppend,
    EmptyHistory,
    InvalidArgument,
    InvariantViolated,
    KakeyaError,
    ModelNotFound,
    NodeNotFound,
    NodeUnreachable,
    ResourceExhausted,
    TextError,
    TokenizerNotFound,
    TransportError,
    Unimplemented,
)

# Clients come back after so many seconds when the node said nothing of it.
RETRY_SECONDS = 1.0

_KINDS: Mapping[int, str] = MappingProxyType(
    {
        404: "not_found_error",
        408: "timeout_error",
        429: "rate_limit_error",
        500: "server_error",
        502: "server_error",
        503: "server_error",
        504: "server_error",
    }
)

# The first class that fits decides; what none fits is 503: the fleet cannot do it now.
_STATUSES: tuple[tuple[type[KakeyaError], HTTPStatus], ...] = (
    (ModelNotFound, HTTPStatus.NOT_FOUND),
    (NodeNotFound, HTTPStatus.NOT_FOUND),
    (TokenizerNotFound, HTTPStatus.NOT_FOUND),
    (InvalidArgument, HTTPStatus.BAD_REQUEST),
    (BadRequest, HTTPStatus.BAD_REQUEST),
    (ContextExceeded, HTTPStatus.BAD_REQUEST),
    (EmptyHistory, HTTPStatus.BAD_REQUEST),
    (EmptyAppend, HTTPStatus.BAD_REQUEST),
    (Unimplemented, HTTPStatus.BAD_REQUEST),
    (ResourceExhausted, HTTPStatus.TOO_MANY_REQUESTS),
    (InvariantViolated, HTTPStatus.INTERNAL_SERVER_ERROR),
    (TextError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (NodeUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (DeadlineExceeded, HTTPStatus.GATEWAY_TIMEOUT),
    (TransportError, HTTPStatus.BAD_GATEWAY),
)
_AGAIN_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class HttpRefusal(Exception):
    """What a request is refused with, or a stream ends with.

    `reason` is in UPPER_SNAKE_CASE, `parameter` names the field at fault, and
    `retry_after` are seconds, None where coming back does not help.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        parameter: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.parameter = parameter
        self.retry_after = retry_after

    def envelope(self) -> dict[str, object]:
        """The body, in OpenAI's shape."""
        return {
            "error": {
                "message": self.message,
                "type": _KINDS.get(self.status, "invalid_request_error"),
                "param": self.parameter,
                "code": self.reason,
            }
        }

    def headers(self) -> dict[str, str]:
        """Retry-After, in whole seconds as HTTP has them."""
        if self.retry_after is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after)))}


def bad_field(parameter: str, message: str) -> HttpRefusal:
    """A field of the body has a value that it cannot have."""
    return HttpRefusal(400, "BAD_REQUEST", message, parameter=parameter)


def unsupported(parameter: str, message: str) -> HttpRefusal:
    """A field of OpenAI's asks for what this fleet does not do."""
    return HttpRefusal(400, "UNSUPPORTED", message, parameter=parameter)


def refusal_of(error: KakeyaError) -> HttpRefusal:
    """What an error of the client is in HTTP; reason, sentence and mend stay its own."""
    status = next(
        (status for kind, status in _STATUSES if isinstance(error, kind)),
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    retry_after = error.retry_after_seconds
    if status in _AGAIN_LATER:
        retry_after = retry_after or RETRY_SECONDS
    return HttpRefusal(
        status,
        error.reason,
        f"{error}." if error.mend else str(error),
        parameter="model" if status is HTTPStatus.NOT_FOUND else None,
        retry_after=retry_after,
    )

"""Refusals of HTTP: a status, and OpenAI's envelope around this fleet's reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from kakeya import KakeyaError
from kakeya_fleet.node.rpc.error_reasons import REASONS

# Clients come back after so many seconds when the node said nothing of it.
RETRY_SECONDS = 1.0

_KINDS: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        408: "timeout_error",
        429: "rate_limit_error",
        500: "server_error",
        502: "server_error",
        503: "server_error",
        504: "server_error",
    }
)

_AGAIN_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class HttpRefusal(Exception):
    """What a request is refused with, or a stream ends with.

    `reason` is one of the vocabulary and has its status, unless another `status` is
    given. `parameter` names the field at fault, and `retry_after` are seconds, None
    where coming back does not help.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        status: int | None = None,
        parameter: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status or REASONS[reason].http_status
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
        """When to come back, in whole seconds as HTTP has them, or how to show a key."""
        if self.status == HTTPStatus.UNAUTHORIZED:
            return {"WWW-Authenticate": "Bearer"}
        if self.retry_after is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after)))}


def bad_field(parameter: str, message: str) -> HttpRefusal:
    """A field of the body has a value that it cannot have."""
    return HttpRefusal("BAD_REQUEST", message, parameter=parameter)


def unsupported(parameter: str, message: str) -> HttpRefusal:
    """A field of OpenAI's asks for what this fleet does not do."""
    return HttpRefusal("UNSUPPORTED", message, parameter=parameter)


def refusal_of(error: KakeyaError) -> HttpRefusal:
    """What an error of the client is in HTTP; reason, sentence and remedy stay its own.

    The status is that of its class: a newer node's reason may not be known here.
    """
    status = REASONS[error.default_reason].http_status
    retry_after = error.retry_after_seconds
    if status in _AGAIN_LATER:
        retry_after = retry_after or RETRY_SECONDS
    return HttpRefusal(
        error.reason,
        f"{error}." if error.mend else str(error),
        status=status,
        parameter="model" if status == HTTPStatus.NOT_FOUND else None,
        retry_after=retry_after,
    )

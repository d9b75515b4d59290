"""The JSON body of a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from aiohttp import web

from kakeya_fleet.node.admission.holding import Holding
from kakeya_fleet.node.admission.limits import HttpLimits
from kakeya_fleet.node.http.json_size import values_at_most
from kakeya_fleet.node.http.refusal import HttpRefusal

_HALF_A_CHARACTER = b"\\ud"


async def read_json(
    request: web.Request, limits: HttpLimits, memory: Holding
) -> Mapping[str, object]:
    """The object in the body, whose bytes `memory` holds. Raises `HttpRefusal`.

    The content type must say JSON: a page of elsewhere may send forms and plain
    text without asking, but not that.
    """
    if request.content_type != "application/json":
        raise HttpRefusal(
            "NOT_JSON",
            f"the content type is {request.content_type[:60]!r}; send application/json",
        )
    try:
        async with asyncio.timeout(limits.body_seconds):
            raw = await _body_of(request, limits, memory)
    except TimeoutError:
        raise HttpRefusal(
            "BODY_TOO_SLOW", f"the body did not come within {limits.body_seconds:g} s"
        ) from None
    except web.RequestPayloadError:
        raise HttpRefusal(
            "BAD_JSON",
            "the body is not what its headers say: see Content-Encoding, Transfer-Encoding and "
            "Content-Length",
        ) from None
    if not values_at_most(raw, limits.body_values):
        raise _too_large(f"has more than {limits.body_values} values")
    try:
        # No other encoding: what was counted would be something else.
        body = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
        if _HALF_A_CHARACTER in raw.lower():
            # JSON can write halves of characters, which no text and no tokenizer has.
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        detail = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise HttpRefusal("BAD_JSON", f"the body is not JSON: {detail}") from None
    if not isinstance(body, dict):
        raise HttpRefusal("BAD_JSON", "the body is JSON, but not an object")
    return body


async def _body_of(request: web.Request, limits: HttpLimits, memory: Holding) -> bytes:
    """Decompressed. Raises `HttpRefusal` before more is kept than may be."""
    body = bytearray()
    async for piece in request.content.iter_any():
        if len(body) + len(piece) > limits.body_bytes:
            raise _too_large(f"is larger than {limits.body_bytes} bytes")
        memory.take(len(piece))
        body += piece
    return bytes(body)


def _too_large(what: str) -> HttpRefusal:
    return HttpRefusal(
        "BODY_TOO_LARGE", f"the body {what}; for long contexts append to a session with the SDK"
    )


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")

"""The JSON body of a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from aiohttp import web

from kakeya_fleet.node.admission.limits import HttpLimits
from kakeya_fleet.node.http.json_parts import PIECE_BYTES, JsonParts
from kakeya_fleet.node.http.refusal import HttpRefusal

_HALF_A_CHARACTER = b"\\ud"


async def read_json(request: web.Request, limits: HttpLimits) -> Mapping[str, object]:
    """The object in the body. Raises `HttpRefusal`.

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
            raw = await request.read()
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
    except web.HTTPRequestEntityTooLarge:
        raise HttpRefusal(
            "BODY_TOO_LARGE",
            f"the body is larger than {limits.body_bytes} bytes; for long contexts append to a "
            "session with the SDK",
        ) from None
    await _check_parts(raw, limits)
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


async def _check_parts(raw: bytes, limits: HttpLimits) -> None:
    """Refuses what would take the event loop's time to read, before it is read.

    Text takes next to none, so that bytes alone tell nothing.
    """
    parts = JsonParts()
    for first in range(0, len(raw), PIECE_BYTES):
        parts.add(raw[first : first + PIECE_BYTES])
        for count, limit, what in (
            (parts.comma_count, limits.body_values, "values"),
            (parts.part_count, limits.body_parts, "lists, objects and members"),
        ):
            if count > limit:
                raise HttpRefusal(
                    "BODY_TOO_LARGE",
                    f"the body has more than {limit} {what}; for long contexts append to a session "
                    "with the SDK",
                )
        if first:
            await asyncio.sleep(0)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")

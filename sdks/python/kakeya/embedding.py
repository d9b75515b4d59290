"""A text as one vector, from the node that serves the model."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya.connection import Connection
from kakeya.errors import ContextExceeded
from kakeya.generated import wire
from kakeya.generated.values import TextVector
from kakeya.v1 import runtime_pb2

MAX_EMBED_TOKENS = 196_608
"""Ids in one request: at most 5 bytes each, so under the limit of 1 MiB."""


async def embed(
    connection: Connection, model: str, token_ids: Sequence[int], traceparent: str = ""
) -> TextVector:
    """The vector of a text of `model` as the node of `connection` serves it.

    Raises what the call raises, and ContextExceeded for more ids than one request takes.
    """
    count = len(token_ids)
    if count > MAX_EMBED_TOKENS:
        raise ContextExceeded(
            f"{count:,} token ids are more than the {MAX_EMBED_TOKENS:,} of one text; cut it"
        )
    response = await connection.unary(
        connection.runtime.Embed,
        runtime_pb2.EmbedRequest(model_id=model, token_ids=token_ids),
        connection.timeouts.append(count),
        idempotent=True,
        traceparent=traceparent,
    )
    return wire.text_vector(response)

"""Keys of applications between the wire and the domain."""

from __future__ import annotations

import math

from kakeya.v1 import trust_pb2
from kakeya_fleet.fleet.trust.keys import MAX_NAME_CHARACTERS, ApplicationKey, Scope
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.statement_wire import SCOPES, scopes_from_wire

LONGEST_SECONDS = 100 * 366 * 86_400.0
MOST_TOKENS_PER_MINUTE = 1 << 30


def key_from_wire(request: trust_pb2.CreateKeyRequest, now_unix: float) -> ApplicationKey:
    """What is asked for, without a digest yet. Raises `MalformedMessage`."""
    name = request.name
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise MalformedMessage(f"the name of a key has 1 to {MAX_NAME_CHARACTERS} characters")
    if any(each not in SCOPES.values() for each in request.scopes):
        raise MalformedMessage("a scope of the key is not known here")
    if not 0 <= request.valid_seconds <= LONGEST_SECONDS or math.isnan(request.valid_seconds):
        raise MalformedMessage("valid_seconds is no time for which a key is good")
    if request.tokens_per_minute > MOST_TOKENS_PER_MINUTE:
        raise MalformedMessage(f"tokens_per_minute is {MOST_TOKENS_PER_MINUTE} at most")
    return ApplicationKey(
        name=name,
        digest=b"",
        scopes=scopes_from_wire(request.scopes) or frozenset({Scope.GENERATE}),
        session_limit=request.session_limit,
        tokens_per_minute=request.tokens_per_minute,
        generation_limit=request.generation_limit,
        expires_at_unix=now_unix + request.valid_seconds if request.valid_seconds else 0.0,
        made_at_unix=now_unix,
    )


def key_to_wire(
    key: ApplicationKey, keys: ApplicationKeys, now_unix: float
) -> trust_pb2.ApplicationKey:
    """The key as people are told of it."""
    return trust_pb2.ApplicationKey(
        key_id=key.key_id,
        name=key.name,
        scopes=sorted(SCOPES[each] for each in key.scopes),
        session_limit=key.session_limit,
        tokens_per_minute=key.tokens_per_minute,
        generation_limit=key.generation_limit,
        expires_at_unix=key.expires_at_unix,
        made_at_unix=key.made_at_unix,
        revoked=keys.is_revoked(key),
        expired=key.is_over(now_unix),
    )

"""Creations of sessions that a retry with the same request id finds again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from kakeya_fleet.engine.errors import BadParameters

REQUEST_ID_SECONDS = 600.0
# A client that opens and closes in a loop cannot fill the memory with ids.
REMEMBERED_REQUESTS = 4096
MAX_REQUEST_ID_CHARACTERS = 128


def check_request_id(request_id: str) -> None:
    """Raises `BadParameters` for one that is too long."""
    if len(request_id) > MAX_REQUEST_ID_CHARACTERS:
        raise BadParameters(
            f"the request id has more than {MAX_REQUEST_ID_CHARACTERS} characters",
            field="request_id",
        )


@dataclass(frozen=True, slots=True)
class _Request:
    session_id: str
    asked_for: int
    """Its hash: 4,096 of what may name 1,024 tokens each would take 250 MB."""
    asked_at: float


class CreationRequests:
    """The latest request ids, for ten minutes. Used by one thread at a time.

    Each owner has request ids of its own at each verifier, which `verifier` stands for: what
    somebody else has asked for by the same id is told to nobody.
    """

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[Hashable, str, str], _Request] = OrderedDict()

    def remember(
        self,
        verifier: Hashable,
        owner: str,
        request_id: str,
        session_id: str,
        asked_for: Hashable,
        now: float,
    ) -> None:
        """`request_id` opened a session; an empty one is not remembered."""
        if not request_id:
            return
        key = (verifier, owner, request_id)
        self._requests.pop(key, None)
        self._requests[key] = _Request(session_id, hash(asked_for), now)
        if len(self._requests) > REMEMBERED_REQUESTS:
            self._requests.popitem(last=False)

    def check(
        self, verifier: Hashable, owner: str, request_id: str, asked_for: Hashable, now: float
    ) -> None:
        """Raises `BadParameters` when `request_id` asked for something else."""
        self.forget(now)
        request = self._requests.get((verifier, owner, request_id))
        if request is not None and request.asked_for != hash(asked_for):
            raise BadParameters(
                f"request id {request_id!r} opened another kind of session", field="request_id"
            )

    def found(self, verifier: Hashable, owner: str, request_id: str, now: float) -> str | None:
        """The session that `request_id` opened, which may have ended; None for an unknown one."""
        self.forget(now)
        request = self._requests.get((verifier, owner, request_id))
        return request.session_id if request is not None else None

    def forget_verifier(self, verifier: Hashable) -> None:
        """Forgets those of a verifier that is gone."""
        for key in [key for key in self._requests if key[0] == verifier]:
            del self._requests[key]

    def forget(self, now: float) -> None:
        """Forgets those that are older than ten minutes."""
        while self._requests:
            key, oldest = next(iter(self._requests.items()))
            if now - oldest.asked_at < REQUEST_ID_SECONDS:
                return
            del self._requests[key]

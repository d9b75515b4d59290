"""One generation of a session, as an asynchronous iterator of committed tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import chain
from typing import TypeVar

from kakeya.errors import UnexpectedError
from kakeya.generated import wire
from kakeya.generated.values import GenerationDone
from kakeya.history import History
from kakeya.streams import AsyncStream, MessageSource
from kakeya.v1 import runtime_pb2
from kakeya.values import Alternative, Completion, Tokens

ItemT = TypeVar("ItemT")


class AsyncGeneration(AsyncStream[runtime_pb2.GenerateResponse, Tokens]):
    """Tokens as they commit: `async for tokens in session.generate(100)`.

    Iterated once, in blocks or by `ids()`. Leaving the iteration stops the work
    on the node within a block; the session lives. `done` holds the end once the
    iteration came to it.
    """

    def __init__(
        self,
        start: Callable[[], MessageSource[runtime_pb2.GenerateResponse]],
        history: History,
    ) -> None:
        super().__init__()
        self._start = start
        self._history = history
        self._done: GenerationDone | None = None

    @property
    def done(self) -> GenerationDone | None:
        """The end; None until the iteration came to it."""
        return self._done

    def ids(self) -> AsyncIterator[int]:
        """The same tokens, one id at a time; the session's history grows by blocks."""
        return _Ids(aiter(self))

    async def collect(self) -> Completion:
        """Waits for the whole generation. Raises what the iteration raises."""
        blocks = [tokens async for tokens in self]
        if self._done is None:
            raise UnexpectedError("the generation was left before its end")
        return Completion(
            token_ids=_joined(tokens.token_ids for tokens in blocks),
            done=self._done,
            log_probabilities=_joined(tokens.log_probabilities for tokens in blocks),
            alternatives=_joined(tokens.alternatives for tokens in blocks),
        )

    def _open(self) -> MessageSource[runtime_pb2.GenerateResponse]:
        return self._start()

    def _take(self, message: runtime_pb2.GenerateResponse) -> Tokens | None:
        if message.HasField("tokens"):
            tokens = committed(message.tokens)
            self._history.receive(tokens.token_ids, tokens.first_index)
            return tokens
        if message.HasField("done"):
            self._done = wire.generation_done(message.done)
            self._history.finish(self._done.history_length)
        return None

    def _finish(self) -> None:
        if self._done is None:
            raise UnexpectedError("the node ended the generation without saying why")


def committed(message: runtime_pb2.CommittedTokens) -> Tokens:
    """Tokens as they commit. Raises UnexpectedError."""
    return Tokens(
        tuple(message.token_ids),
        message.first_index,
        message.drafted_count,
        tuple(message.log_probabilities),
        tuple(_alternatives(each) for each in message.alternatives),
    )


def _alternatives(message: runtime_pb2.TokenAlternatives) -> tuple[Alternative, ...]:
    if len(message.token_ids) != len(message.log_probabilities):
        raise UnexpectedError("the node sent alternatives without their log-probabilities")
    pairs = zip(message.token_ids, message.log_probabilities, strict=True)
    return tuple(Alternative(token_id, value) for token_id, value in pairs)


def _joined(parts: Iterable[tuple[ItemT, ...]]) -> tuple[ItemT, ...]:
    return tuple(chain.from_iterable(parts))


class _Ids(AsyncIterator[int]):
    """Ids of an iteration; dropping it drops the iteration."""

    def __init__(self, blocks: AsyncIterator[Tokens]) -> None:
        self._blocks = blocks
        self._pending: deque[int] = deque()

    async def __anext__(self) -> int:
        while not self._pending:
            self._pending.extend((await anext(self._blocks)).token_ids)
        return self._pending.popleft()

"""The synchronous client: the asynchronous one, behind a private event loop.

Every method waits for its namesake of `AsyncClient`, `AsyncSession`,
`AsyncGeneration`, `AsyncFleet`, `AsyncModelLoad`, `AsyncModelPull` or `AsyncWatch`,
which documents it, and raises the same errors. Objects may be shared between threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar, Unpack

from kakeya.answer import LONGEST_ANSWER, AsyncAnswer
from kakeya.chat import AsyncChat
from kakeya.client import AsyncClient
from kakeya.conversation import Message
from kakeya.credentials import Owner, Tls
from kakeya.errors import ClientClosed
from kakeya.fleet_view import AsyncFleet
from kakeya.generated.values import (
    GenerationDone,
    KvStrategy,
    LimitUse,
    LoadedModel,
    LoadProgress,
    MeasuredCodec,
    ModelOffer,
    Node,
    NodeSpans,
    Plan,
    PulledModel,
    PullProgress,
    RemovedModel,
    Role,
    SessionInfo,
    StoredModel,
    TextVector,
    UnloadedModel,
)
from kakeya.generation import AsyncGeneration
from kakeya.model_load import AsyncModelLoad
from kakeya.model_pull import AsyncModelPull
from kakeya.options import ChatOptions, GenerateOptions, PlanOptions, SessionOptions
from kakeya.portal import Portal
from kakeya.session import AsyncSession
from kakeya.text import TextCodec
from kakeya.timeouts import Timeouts
from kakeya.values import Completion, Resumption, Tokens
from kakeya.watch_values import (
    FleetEvent,
    FleetSnapshot,
    NodeActivity,
    NodeStatus,
    SessionsEvent,
)
from kakeya.watches import AsyncWatch


class _Leavable(Protocol):
    async def aclose(self) -> None: ...


StreamT = TypeVar("StreamT", bound=_Leavable)
EventT = TypeVar("EventT")


class Client:
    """`AsyncClient` for synchronous code. A context manager; `close` ends its thread.

    Without either it closes itself when neither it nor anything of it is held any more,
    so that `Client(address).fleet.nodes()` works.
    """

    def __init__(
        self,
        address: str,
        *,
        timeouts: Timeouts | None = None,
        api_key: str | None = None,
        tls: Tls | None = None,
        owner: Owner | None = None,
    ) -> None:
        """See `AsyncClient`."""
        self._inner = AsyncClient(address, timeouts=timeouts, api_key=api_key, tls=tls, owner=owner)
        self._portal = Portal(self._inner.close)

    @property
    def address(self) -> str:
        """The node that is asked first, host:port."""
        return self._inner.address

    @property
    def fleet(self) -> Fleet:
        """The fleet as that node sees it."""
        return Fleet(self._portal, self._inner.fleet)

    def create_session(self, model: str, **options: Unpack[SessionOptions]) -> Session:
        """See `AsyncClient.create_session`."""
        opened = self._inner.create_session(model, **options)
        return Session(self._portal, self._portal.run(opened))

    def chat(self, model: str | None = None, **options: Unpack[ChatOptions]) -> Chat:
        """See `AsyncClient.chat`."""
        return Chat(self._portal, self._portal.run(self._inner.chat(model, **options)))

    def sessions(self, *, page_size: int = 100) -> Iterator[SessionInfo]:
        """See `AsyncClient.sessions`."""
        return self._portal.iterate(lambda: self._inner.sessions(page_size=page_size))

    def close_session(self, session_id: str) -> int:
        """See `AsyncClient.close_session`."""
        return self._portal.run(self._inner.close_session(session_id))

    def text(self, model: str) -> TextCodec:
        """See `AsyncClient.text`."""
        return self._portal.run(self._inner.text(model))

    def embed(self, model: str, token_ids: Sequence[int], *, traceparent: str = "") -> TextVector:
        """See `AsyncClient.embed`."""
        return self._portal.run(self._inner.embed(model, token_ids, traceparent=traceparent))

    def watch_sessions(self, *, block_count: int = 64) -> Watch[SessionsEvent]:
        """See `AsyncClient.watch_sessions`."""
        return Watch(self._portal, self._inner.watch_sessions(block_count=block_count))

    def close(self) -> None:
        """See `AsyncClient.close`; also ends the private thread."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Session:
    """`AsyncSession` for synchronous code. Made by `Client.create_session`."""

    def __init__(self, portal: Portal, inner: AsyncSession) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def session_id(self) -> str:
        """Names the session on its node. A rewind or a resumption changes it."""
        return self._inner.session_id

    @property
    def address(self) -> str:
        """The node that holds the session, host:port."""
        return self._inner.address

    @property
    def model(self) -> ModelOffer:
        """The verifier model, as the node's card offers it."""
        return self._inner.model

    @property
    def vocabulary_size(self) -> int:
        """Ids are 0 to vocabulary_size - 1."""
        return self._inner.vocabulary_size

    @property
    def plan(self) -> Plan:
        """The pair that serves the session, with reasons."""
        return self._inner.plan

    @property
    def kv_strategy(self) -> KvStrategy | None:
        """See `AsyncSession.kv_strategy`."""
        return self._inner.kv_strategy

    @property
    def prefill_seconds(self) -> float:
        """See `AsyncSession.prefill_seconds`."""
        return self._inner.prefill_seconds

    @property
    def recomputed_token_count(self) -> int:
        """Positions before the prompt that the node computed once more with it."""
        return self._inner.recomputed_token_count

    @property
    def history(self) -> tuple[int, ...]:
        """All ids that were appended and received, oldest first."""
        return self._inner.history

    @property
    def history_length(self) -> int:
        """Ids in `history`."""
        return self._inner.history_length

    @property
    def resumptions(self) -> tuple[Resumption, ...]:
        """The times that another node took the session over, oldest first."""
        return self._inner.resumptions

    def traced_by(self, traceparent: str) -> None:
        """See `AsyncSession.traced_by`."""
        self._inner.traced_by(traceparent)

    def append(
        self,
        token_ids: Sequence[int],
        expected_history_length: int | None = None,
        *,
        room_tokens: int = 0,
    ) -> int:
        """See `AsyncSession.append`."""
        appending = self._inner.append(token_ids, expected_history_length, room_tokens=room_tokens)
        return self._portal.run(appending)

    def generate(self, max_tokens: int, **options: Unpack[GenerateOptions]) -> Generation:
        """See `AsyncSession.generate`."""
        return Generation(self._portal, self._inner.generate(max_tokens, **options))

    def say(
        self, text: str, *, max_tokens: int = LONGEST_ANSWER, **options: Unpack[GenerateOptions]
    ) -> Answer:
        """See `AsyncSession.say`."""
        return Answer(self._portal, self._inner.say(text, max_tokens=max_tokens, **options))

    def info(self) -> SessionInfo:
        """See `AsyncSession.info`."""
        return self._portal.run(self._inner.info())

    def fork(self, history_length: int | None = None) -> Session:
        """See `AsyncSession.fork`."""
        return Session(self._portal, self._portal.run(self._inner.fork(history_length)))

    def rewind(self, history_length: int | None = None) -> None:
        """See `AsyncSession.rewind`."""
        self._portal.run(self._inner.rewind(history_length))

    def resume(self) -> None:
        """See `AsyncSession.resume`."""
        self._portal.run(self._inner.resume())

    def close(self) -> None:
        """See `AsyncSession.close`."""
        self._portal.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A client that was closed first has nothing left to send.
        with suppress(ClientClosed):
            self._portal.run(self._inner.__aexit__(kind, error, traceback))


class Chat:
    """`AsyncChat` for synchronous code. Made by `Client.chat`."""

    def __init__(self, portal: Portal, inner: AsyncChat) -> None:
        self._portal = portal
        self._inner = inner

    @property
    def session(self) -> Session:
        """See `AsyncChat.session`."""
        return Session(self._portal, self._inner.session)

    @property
    def messages(self) -> tuple[Message, ...]:
        """See `AsyncChat.messages`."""
        return self._inner.messages

    def say(
        self, text: str, *, max_tokens: int | None = None, **options: Unpack[GenerateOptions]
    ) -> Answer:
        """See `AsyncChat.say`."""
        return Answer(self._portal, self._inner.say(text, max_tokens=max_tokens, **options))

    def undo(self) -> str | None:
        """See `AsyncChat.undo`."""

        async def undone() -> str | None:
            return self._inner.undo()

        # On the loop, where an answer that was just dropped has let go.
        return self._portal.run(undone())

    def close(self) -> None:
        """See `AsyncChat.close`."""
        self._portal.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ClientClosed):
            self._portal.run(self._inner.__aexit__(kind, error, traceback))


class _Stream(Generic[StreamT]):
    """`AsyncStream` for synchronous code; leaving it ends the call on the node too."""

    def __init__(self, portal: Portal, inner: StreamT) -> None:
        self._portal = portal
        self._inner = inner

    def close(self) -> None:
        """See `AsyncStream.aclose`."""
        # A client that was closed has left its streams.
        with suppress(ClientClosed):
            self._portal.run(self._inner.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Generation(_Stream[AsyncGeneration]):
    """`AsyncGeneration` for synchronous code: `for tokens in session.generate(100)`."""

    @property
    def done(self) -> GenerationDone | None:
        """The end; None until the iteration came to it."""
        return self._inner.done

    def ids(self) -> Iterator[int]:
        """See `AsyncGeneration.ids`."""
        return self._portal.iterate(self._inner.ids)

    def collect(self) -> Completion:
        """See `AsyncGeneration.collect`."""
        return self._portal.run(self._inner.collect())

    def __iter__(self) -> Iterator[Tokens]:
        return self._portal.iterate(lambda: aiter(self._inner))


class Answer(_Stream[AsyncAnswer]):
    """`AsyncAnswer` for synchronous code: `for piece in chat.say("...")`."""

    @property
    def done(self) -> GenerationDone | None:
        """See `AsyncAnswer.done`."""
        return self._inner.done

    def text(self) -> str:
        """See `AsyncAnswer.text`."""
        return self._portal.run(self._inner.text())

    def __iter__(self) -> Iterator[str]:
        return self._portal.iterate(lambda: aiter(self._inner))


class Watch(_Stream[AsyncWatch[EventT]], Generic[EventT]):
    """`AsyncWatch` for synchronous code."""

    def __iter__(self) -> Iterator[EventT]:
        return self._portal.iterate(lambda: aiter(self._inner))


class ModelLoad(_Stream[AsyncModelLoad]):
    """`AsyncModelLoad` for synchronous code."""

    @property
    def loaded(self) -> LoadedModel | None:
        """What is served; None until the iteration came to its end."""
        return self._inner.loaded

    def wait(self) -> LoadedModel:
        """See `AsyncModelLoad.wait`."""
        return self._portal.run(self._inner.wait())

    def __iter__(self) -> Iterator[LoadProgress]:
        return self._portal.iterate(lambda: aiter(self._inner))


class ModelPull(_Stream[AsyncModelPull]):
    """`AsyncModelPull` for synchronous code."""

    @property
    def pulled(self) -> PulledModel | None:
        """What is on the disk; None until the iteration came to its end."""
        return self._inner.pulled

    def wait(self) -> PulledModel:
        """See `AsyncModelPull.wait`."""
        return self._portal.run(self._inner.wait())

    def __iter__(self) -> Iterator[PullProgress]:
        return self._portal.iterate(lambda: aiter(self._inner))


class Fleet:
    """`AsyncFleet` for synchronous code: `client.fleet`."""

    def __init__(self, portal: Portal, inner: AsyncFleet) -> None:
        self._portal = portal
        self._inner = inner

    def snapshot(self) -> FleetSnapshot:
        """See `AsyncFleet.snapshot`."""
        return self._portal.run(self._inner.snapshot())

    def nodes(self) -> tuple[NodeStatus, ...]:
        """See `AsyncFleet.nodes`."""
        return self._portal.run(self._inner.nodes())

    def watch(self) -> Watch[FleetEvent]:
        """See `AsyncFleet.watch`."""
        return Watch(self._portal, self._inner.watch())

    def watch_node(self, *, history_seconds: float = 0.0) -> Watch[NodeActivity]:
        """See `AsyncFleet.watch_node`."""
        return Watch(self._portal, self._inner.watch_node(history_seconds=history_seconds))

    def node(self) -> Node:
        """See `AsyncFleet.node`."""
        return self._portal.run(self._inner.node())

    def limits(self) -> tuple[LimitUse, ...]:
        """See `AsyncFleet.limits`."""
        return self._portal.run(self._inner.limits())

    def codecs(self) -> tuple[MeasuredCodec, ...]:
        """See `AsyncFleet.codecs`."""
        return self._portal.run(self._inner.codecs())

    def reset_codecs(self, model: str = "") -> int:
        """See `AsyncFleet.reset_codecs`."""
        return self._portal.run(self._inner.reset_codecs(model))

    def spans(self, request: str) -> NodeSpans:
        """See `AsyncFleet.spans`."""
        return self._portal.run(self._inner.spans(request))

    def plan(self, verifier_model: str, **options: Unpack[PlanOptions]) -> Plan:
        """See `AsyncFleet.plan`."""
        return self._portal.run(self._inner.plan(verifier_model, **options))

    def load_model(
        self,
        model: str,
        *,
        role: Role | None = None,
        weights: str = "",
        unload_after_seconds: float | None = None,
    ) -> ModelLoad:
        """See `AsyncFleet.load_model`."""
        load = self._inner.load_model(
            model, role=role, weights=weights, unload_after_seconds=unload_after_seconds
        )
        return ModelLoad(self._portal, load)

    def unload_model(
        self, model: str, *, role: Role | None = None, drain_seconds: float = 5.0
    ) -> UnloadedModel:
        """See `AsyncFleet.unload_model`."""
        unloaded = self._inner.unload_model(model, role=role, drain_seconds=drain_seconds)
        return self._portal.run(unloaded)

    def pull_model(self, model: str, *, sources: Sequence[str] = ()) -> ModelPull:
        """See `AsyncFleet.pull_model`."""
        return ModelPull(self._portal, self._inner.pull_model(model, sources=sources))

    def remove_model(self, model: str) -> RemovedModel:
        """See `AsyncFleet.remove_model`."""
        return self._portal.run(self._inner.remove_model(model))

    def stored_models(self) -> tuple[StoredModel, ...]:
        """See `AsyncFleet.stored_models`."""
        return self._portal.run(self._inner.stored_models())

    def leave(self, drain_seconds: float = 5.0) -> str:
        """See `AsyncFleet.leave`."""
        return self._portal.run(self._inner.leave(drain_seconds))

"""The synchronous client: the asynchronous one, behind a private event loop.

Every method waits for its namesake of `AsyncClient`, `AsyncSession`,
`AsyncGeneration`, `AsyncFleet` or `AsyncWatch`, which documents it, and raises
the same errors. Objects may be shared between threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from kakeya.activity_values import NodeActivity, SessionsEvent
from kakeya.client import AsyncClient, SpeculationChoice
from kakeya.credentials import Tls
from kakeya.errors import ClientClosed
from kakeya.fleet_values import FleetEvent, FleetSnapshot, Node, NodeStatus
from kakeya.fleet_view import AsyncFleet
from kakeya.generation import AsyncGeneration
from kakeya.plan_values import KvStrategy, ModelOffer, Plan, RestorerKind
from kakeya.portal import Portal
from kakeya.session import AsyncSession
from kakeya.text import TextCodec
from kakeya.timeouts import Timeouts
from kakeya.values import Completion, GenerationDone, Resumption, SessionInfo, Tokens
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
    ) -> None:
        """See `AsyncClient`."""
        self._inner = AsyncClient(address, timeouts=timeouts, api_key=api_key, tls=tls)
        self._portal = Portal(self._inner.close)

    @property
    def address(self) -> str:
        """The node that is asked first, host:port."""
        return self._inner.address

    @property
    def fleet(self) -> Fleet:
        """The fleet as that node sees it."""
        return Fleet(self._portal, self._inner.fleet)

    def create_session(  # noqa: PLR0913 - the fields of the request, all optional but one
        self,
        model: str,
        *,
        tokens: Sequence[int] = (),
        kv_strategy: KvStrategy | str | None = None,
        sink_tokens: int | None = None,
        window_tokens: int | None = None,
        stop_token_ids: Sequence[int] = (),
        speculation: SpeculationChoice = "auto",
        client_label: str = "",
        request_id: str | None = None,
        max_history_tokens: int = 0,
        restorer: RestorerKind | str | None = None,
        restorer_model: str = "",
        restorer_node_id: str = "",
        resume: bool = False,
    ) -> Session:
        """See `AsyncClient.create_session`."""
        opened = self._inner.create_session(
            model,
            tokens=tokens,
            kv_strategy=kv_strategy,
            sink_tokens=sink_tokens,
            window_tokens=window_tokens,
            stop_token_ids=stop_token_ids,
            speculation=speculation,
            client_label=client_label,
            request_id=request_id,
            max_history_tokens=max_history_tokens,
            restorer=restorer,
            restorer_model=restorer_model,
            restorer_node_id=restorer_node_id,
            resume=resume,
        )
        return Session(self._portal, self._portal.run(opened))

    def sessions(self, *, page_size: int = 100) -> Iterator[SessionInfo]:
        """See `AsyncClient.sessions`."""
        return self._portal.iterate(lambda: self._inner.sessions(page_size=page_size))

    def text(self, model: str) -> TextCodec:
        """See `AsyncClient.text`."""
        return self._portal.run(self._inner.text(model))

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

    def append(self, token_ids: Sequence[int], expected_history_length: int | None = None) -> int:
        """See `AsyncSession.append`."""
        return self._portal.run(self._inner.append(token_ids, expected_history_length))

    def generate(  # noqa: PLR0913 - the fields of the request, all optional but one
        self,
        max_tokens: int,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        logit_bias: Mapping[int, float] | None = None,
        seed: int | None = None,
        stop_token_ids: Sequence[int] = (),
        top_log_probabilities: int | None = None,
        deadline_seconds: float | None = None,
    ) -> Generation:
        """See `AsyncSession.generate`."""
        generation = self._inner.generate(
            max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            logit_bias=logit_bias,
            seed=seed,
            stop_token_ids=stop_token_ids,
            top_log_probabilities=top_log_probabilities,
            deadline_seconds=deadline_seconds,
        )
        return Generation(self._portal, generation)

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


class Watch(_Stream[AsyncWatch[EventT]], Generic[EventT]):
    """`AsyncWatch` for synchronous code."""

    def __iter__(self) -> Iterator[EventT]:
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

    def plan(  # noqa: PLR0913 - the fields of the request, all optional but one
        self,
        verifier_model: str,
        *,
        proposer_model: str = "",
        proposer_node_id: str = "",
        verifier_node_id: str = "",
        context_tokens: int = 0,
        kv_strategy: KvStrategy | str | None = None,
        sink_tokens: int = 0,
        window_tokens: int = 0,
        block_size: int = 0,
        without_proposer: bool = False,
        restorer: RestorerKind | str | None = None,
        restorer_model: str = "",
        restorer_node_id: str = "",
    ) -> Plan:
        """See `AsyncFleet.plan`."""
        return self._portal.run(
            self._inner.plan(
                verifier_model,
                proposer_model=proposer_model,
                proposer_node_id=proposer_node_id,
                verifier_node_id=verifier_node_id,
                context_tokens=context_tokens,
                kv_strategy=kv_strategy,
                sink_tokens=sink_tokens,
                window_tokens=window_tokens,
                block_size=block_size,
                without_proposer=without_proposer,
                restorer=restorer,
                restorer_model=restorer_model,
                restorer_node_id=restorer_node_id,
            )
        )

    def leave(self, drain_seconds: float = 5.0) -> str:
        """See `AsyncFleet.leave`."""
        return self._portal.run(self._inner.leave(drain_seconds))

"""The models that the fleet serves, and their tokenizers."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from kakeya import AsyncClient, Liveness, ModelNotFound, ModelOffer, NodeStatus, Role
from kakeya.text import TextCodec
from kakeya_fleet.node.http.prompt_encoding import PromptThreads
from kakeya_fleet.node.http.refusal import HttpRefusal

# The fleet is asked again after so many seconds: joining takes longer.
FRESH_SECONDS = 1.0
REST = 4.0
"""Nor for so many times as long as the last answer took, whoever asks for what nobody serves: of
10,000 nodes it takes seconds of this node's time."""
# A tokenizer takes 10 to 100 MB.
MAX_CODECS = 4


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A verifier model, and the name of a node that serves it, since when in seconds since 1970."""

    offer: ModelOffer
    node_name: str
    since_unix: int


class ServedModels:
    """Verifiers of live nodes, as the client's node knows them. Belongs to one event loop."""

    def __init__(
        self,
        client: AsyncClient,
        is_loading: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_loading` tells whether this node is about to serve more models."""
        self._client = client
        self._is_loading = is_loading
        self._clock = clock
        self._known: dict[str, ServedModel] = {}
        self._asked_at = float("-inf")
        self._rests_until = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self.threads = PromptThreads()
        self._codecs: OrderedDict[str, asyncio.Task[TextCodec]] = OrderedDict()

    async def all(self) -> tuple[ServedModel, ...]:
        """All, by model id. Raises `KakeyaError`."""
        if self._clock() >= max(self._asked_at + FRESH_SECONDS, self._rests_until):
            await self._ask()
        return tuple(self._known[model_id] for model_id in sorted(self._known))

    async def find(self, model_id: str) -> ServedModel:
        """The model of that name.

        Raises `ModelNotFound` and other `KakeyaError`s; `HttpRefusal` while it may be among
        those that are being loaded.
        """
        await self.all()
        if model_id not in self._known and self._clock() >= self._rests_until:
            # It may have joined just now.
            await self._ask()
        if model_id in self._known:
            return self._known[model_id]
        served = ", ".join(sorted(self._known)) or "none"
        if self._is_loading():
            raise HttpRefusal(
                "LOADING",
                f"{model_id[:64]!r} is not served yet, and this node loads models; come back",
                parameter="model",
                retry_after=2.0,
            )
        raise ModelNotFound(
            f"no live node serves {model_id[:64]!r} as a verifier; served: {served}",
            metadata={"model_id": model_id[:64], "served": served},
        )

    async def codec(self, model: ServedModel) -> TextCodec:
        """The model's tokenizer; one fetch for all who ask. Raises `KakeyaError`."""
        key = f"{model.offer.tokenizer_digest} {model.offer.model_id}"
        task = self._codecs.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.ensure_future(self._client.text(model.offer.model_id))
            self._codecs[key] = task
            while len(self._codecs) > MAX_CODECS:
                self._codecs.popitem(last=False)
        self._codecs.move_to_end(key)
        # One that leaves does not take the fetch from the others.
        return await asyncio.shield(task)

    async def _ask(self) -> None:
        """Asks the fleet; one question for all who wait. Raises `KakeyaError`."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._asked())
        # One that leaves does not take the answer from the others.
        await asyncio.shield(self._asking)

    async def _asked(self) -> None:
        began = self._clock()
        nodes = await self._client.fleet.nodes()
        self._known = {}
        # This node's own first, as a session is opened here where it can be.
        for node in sorted(nodes, key=lambda each: not each.is_self):
            self._add(node)
        self._asked_at = self._clock()
        self._rests_until = self._asked_at + REST * (self._asked_at - began)

    def _add(self, node: NodeStatus) -> None:
        if node.card is None or not (node.is_self or node.liveness is Liveness.ALIVE):
            return
        for offer in node.models:
            if offer.role is Role.VERIFIER:
                model = ServedModel(offer, node.name, int(node.card.announced_at_unix))
                self._known.setdefault(offer.model_id, model)

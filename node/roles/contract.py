"""What a node asks of each of its roles: models come and go in it, its services stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import grpc.aio

from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.config.role_spec import RoleSpec


@dataclass(frozen=True, slots=True)
class RoleService:
    """A gRPC service by its full name; `add` registers it at a server that has not started."""

    name: str
    add: Callable[[grpc.aio.Server], None]


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Whether a model is in use now, and how often somebody began to use it since the start."""

    in_use: bool
    use_count: int


class NodeRole(Protocol):
    """One role of a node, whether anything is served in it or not.

    Its services are registered once, for nothing can be added to a server that runs: they
    dispatch to what is served at the moment, and refuse by name what is not. Belongs to the
    event loop's thread; nobody calls `open` or `remove` before the call before has ended.
    """

    @property
    def services(self) -> tuple[RoleService, ...]:
        """What it answers at the node's own port."""
        ...

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of its models."""
        ...

    @property
    def uses(self) -> Mapping[str, ModelUse]:
        """How the models that are served now are used, by model id."""
        ...

    async def open(self, spec: RoleSpec) -> str:
        """Loads, measures and serves what the spec names; its model id, empty for memory.

        Nothing is left of it when this raises `BadRoleSpec`, a `ModelUnusable`,
        `BadParameters`, or is cancelled.
        """
        ...

    async def remove(self, model_id: str, seconds: float) -> None:
        """Ends what `open` gave that id, and gives its memory back.

        Nothing new begins with it once this was called. What runs gets `seconds` to come to
        an end that its client goes on from elsewhere.
        """
        ...

    def sweep(self) -> None:
        """Ends what is idle for too long."""
        ...

    async def drain(self, seconds: float) -> None:
        """Refuses new work from the call on; returns when none runs, after `seconds` at most."""
        ...

    async def close(self) -> None:
        """Ends all that is left, after the server has stopped."""
        ...

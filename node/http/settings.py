"""Where a node's HTTP listens, when a verifier is well, and which node it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kakeya import Tls
    from kakeya_fleet.fleet.cards.card import ArchiveOffer, ModelOffer, Role
    from kakeya_fleet.fleet.views.node_view import NodeView
    from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """When a verifier is well."""

    fresh_seconds: float = 10.0
    """Tokens or a canary that are older prove nothing; a canary runs no more often than that."""
    canary_seconds: float = 5.0
    """A canary that takes longer means that the model's thread hangs, or is hopelessly late."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where to listen, as configured; `names` are further names of the node.

    With a `https_port` clients with a key call `https_host`, which is all of it that other
    machines of a fleet with an authority can reach; -1 for none.
    """

    host: str
    port: int
    last_port: int = 0
    https_host: str = ""
    https_port: int = -1
    last_https_port: int = 0
    names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    """Of pages elsewhere that may use the node."""
    health: HealthSettings = field(default_factory=HealthSettings)


class HealthyRoles(Protocol):
    """What is asked of `node.app.roles.Roles`."""

    @property
    def verifiers(self) -> Mapping[str, ServedVerifier]:
        """Those that are served now, by model."""
        ...

    @property
    def verifier_count(self) -> int:
        """Those that are served now, or are to be."""
        ...

    @property
    def begun(self) -> bool:
        """Whether all is loaded that the node began with."""
        ...

    @property
    def draining(self) -> bool:
        """Whether new work is refused."""
        ...

    def awaited(self) -> frozenset[Role]:
        """The roles of which something is not loaded yet."""
        ...

    def offers(self) -> tuple[ModelOffer, ...]:
        """The models that are served."""
        ...

    def archive_offer(self) -> ArchiveOffer | None:
        """The archive."""
        ...


@dataclass(frozen=True, slots=True)
class ServingNode:
    """The node that HTTP serves; `address` is its gRPC.

    With `tls` that is encrypted, and so are the nodes that the node names in its place.
    """

    name: str
    address: str
    roles: HealthyRoles
    views: Callable[[], Iterable[NodeView]]
    tls: Tls | None = None

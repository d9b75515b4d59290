"""The archive role: memory of this node for what verifiers elsewhere have evicted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kakeya_fleet.fleet.cards.card import ArchiveOffer, ModelOffer
from kakeya_fleet.node.config.role_spec import RoleSpec, archive_bytes
from kakeya_fleet.node.roles.context import RoleContext
from kakeya_fleet.node.roles.contract import ModelUse, RoleService
from kakeya_fleet.node.roles.cycles import free_removed

if TYPE_CHECKING:
    from kakeya_fleet.node.roles.archive.served_archive import ServedArchive


class ArchiveRole:
    """A `NodeRole`: one archive or none, at ports of its own. Belongs to one event loop."""

    services: tuple[RoleService, ...] = ()
    offers: tuple[ModelOffer, ...] = ()

    def __init__(self, context: RoleContext, drafters: Mapping[str, Path]) -> None:
        """`drafters` are folders whose learned maps sessions may name, besides the shipped ones."""
        self._context = context
        self._drafters = drafters
        self._served: list[ServedArchive] = []

    @property
    def offer(self) -> ArchiveOffer | None:
        """What the card says of it; None while there is none."""
        return next((archive.offer for archive in self._served), None)

    @property
    def open_count(self) -> int:
        """Archives of sessions that are open."""
        return sum(archive.open_count for archive in self._served)

    @property
    def used_bytes(self) -> int:
        """Bytes that they take."""
        return sum(archive.used_bytes for archive in self._served)

    @property
    def budget_bytes(self) -> int:
        """Bytes that they may take together."""
        return sum(archive.budget_bytes for archive in self._served)

    @property
    def uses(self) -> Mapping[str, ModelUse]:
        """See `NodeRole.uses`: memory is no model."""
        return {}

    async def open(self, spec: RoleSpec) -> str:
        """See `NodeRole.open`; also raises `PortInUse`."""
        # Most nodes never serve one.
        from kakeya_fleet.node.roles.archive.served_archive import ServedArchive  # noqa: PLC0415

        context = self._context
        archive = await ServedArchive.start(
            archive_bytes(spec.model),
            self._drafters,
            context.metrics,
            context.clock,
            host=context.settings.host,
            allowances=context.allowances,
            trust=context.settings.trust,
            spans=context.activity.spans,
        )
        self._served.append(archive)
        return ""

    async def remove(self, model_id: str, seconds: float) -> None:  # noqa: ARG002 the contract's
        """See `NodeRole.remove`; sessions that used it make elsewhere what it kept."""
        while self._served:
            await self._served.pop().close()
        # Stores and their pool refer to each other.
        await free_removed()

    def sweep(self) -> None:
        """Ends archives that nobody used for as long as their leases."""
        for archive in self._served:
            archive.sweep()

    async def drain(self, seconds: float) -> None:  # noqa: ARG002 the contract's
        """Opens none from now on; those in use go on until `close`."""
        for archive in self._served:
            archive.drain()

    async def close(self) -> None:
        """Ends the archive and the threads that serve it."""
        for archive in self._served:
            await archive.close()

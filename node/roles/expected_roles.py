"""What a node is told to serve, and what of it is not loaded yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kakeya_fleet.engine.models.model_folder import folder_here, model_id_of
from kakeya_fleet.engine.proposers.names import WITHOUT_FILES
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.config.role_spec import (
    BadRoleSpec,
    RoleSpec,
    archive_bytes,
    check_memory,
    check_together,
    parse_role_spec,
)
from kakeya_fleet.node.roles.groups.group_settings import GroupSource


class ExpectedRoles:
    """The specs of one node, which a running one adds to. Belongs to the event loop's thread."""

    def __init__(self, texts: Sequence[str] = (), group: GroupSource | None = None) -> None:
        """`texts` are what the node begins with; `group` computes its verifier, if any.

        Raises `BadRoleSpec`.
        """
        self._group = group
        self._specs: tuple[RoleSpec, ...] = ()
        self._awaited: tuple[RoleSpec, ...] = ()
        self._fewer = asyncio.Event()
        for text in texts:
            self.add(parse_role_spec(text))
        if group is not None and not self.verifier_count:
            raise _not_one(group, 0)

    @property
    def specs(self) -> tuple[RoleSpec, ...]:
        """What is served once all is loaded, in the order in which it was told."""
        return self._specs

    @property
    def awaited(self) -> frozenset[Role]:
        """The roles of which something is not loaded yet."""
        return frozenset(spec.role for spec in self._awaited)

    @property
    def loading(self) -> tuple[RoleSpec, ...]:
        """What is to be served and is not loaded yet."""
        return self._awaited

    @property
    def verifier_count(self) -> int:
        """Verifiers among them."""
        return sum(spec.role is Role.VERIFIER for spec in self._specs)

    @property
    def takes_time(self) -> bool:
        """Whether a model is among them; a lookup and an archive are there at once."""
        models = (spec.model for spec in self._specs if spec.role is not Role.ARCHIVE)
        return any(model not in WITHOUT_FILES for model in models)

    def add(self, spec: RoleSpec) -> None:
        """One more, to be loaded. Raises `BadRoleSpec` unless it goes with the others."""
        if spec.role is Role.ARCHIVE:
            check_memory(archive_bytes(spec.model))
        together = (*self._specs, spec)
        check_together(together)
        count = sum(each.role is Role.VERIFIER for each in together)
        if self._group is not None and count > 1:
            raise _not_one(self._group, count)
        self._specs = together
        self._awaited = (*self._awaited, spec)

    def arrived(self, spec: RoleSpec) -> None:
        """One of them is loaded."""
        self._awaited = tuple(each for each in self._awaited if each != spec)
        before, self._fewer = self._fewer, asyncio.Event()
        before.set()

    def forget(self, spec: RoleSpec) -> None:
        """One of them is not to be served any more, or could not be."""
        self._specs = tuple(each for each in self._specs if each != spec)
        self.arrived(spec)

    async def settled(self, spec: RoleSpec) -> None:
        """Waits until it is loaded, or is not to be any more."""
        while spec in self._awaited:
            await self._fewer.wait()

    def is_loading(self, model_id: str) -> bool:
        """Whether the model will be served as a verifier, and is not yet."""
        # A proposer is asked for by those who have seen its offer: nobody does before.
        awaited = (spec for spec in self._awaited if spec.role is Role.VERIFIER)
        return any(model_id_of(spec.model) == model_id for spec in awaited)

    async def prepare(self, backend: str, device: str) -> None:
        """Finds local verifiers, and imports the libraries that loading needs.

        That holds up the event loop now and then: peers must not yet count on an answer.
        Raises a `ModelUnusable` or `BadParameters`.
        """
        # Those of a group are loaded by other processes.
        verifiers = [] if self._group is not None else self._models(Role.VERIFIER)
        for model in verifiers:
            folder_here(model)
        if self._specs:
            await asyncio.to_thread(self._import, verifiers, backend, device)

    def _import(self, verifiers: list[str], backend: str, device: str) -> None:
        # Most nodes of a large fleet serve nothing.
        from kakeya_fleet.engine.backends import import_archives, import_backend  # noqa: PLC0415
        from kakeya_fleet.engine.proposers.loading import import_proposer  # noqa: PLC0415

        if verifiers:
            import_backend(backend, device)
        for model in self._models(Role.PROPOSER):
            import_proposer(model, backend, device)
        if self._models(Role.ARCHIVE):
            import_archives()

    def _models(self, role: Role) -> list[str]:
        return [spec.model for spec in self._specs if spec.role is role]


def _not_one(group: GroupSource, count: int) -> BadRoleSpec:
    return BadRoleSpec(
        f"{count} verifiers are given for the group of {group.path}",
        "a hostfile serves one: give one --serve verifier=MODEL",
        spec="verifier",
    )

"""What a node is told to serve, and what of it is not loaded yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kakeya_fleet.engine.backends import import_archives, import_backend
from kakeya_fleet.engine.models.model_folder import folder_here, model_id_of
from kakeya_fleet.engine.proposers import ngram
from kakeya_fleet.engine.proposers.loading import import_proposer
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.config.role_spec import (
    RoleSpec,
    archive_bytes,
    check_memory,
    parse_role_specs,
)


class ExpectedRoles:
    """The specs of one node. Belongs to the event loop's thread."""

    def __init__(self, *, backend: str, is_group: bool) -> None:
        """`is_group` says that other processes compute the verifier."""
        self._backend = backend
        self._is_group = is_group
        self.specs: tuple[RoleSpec, ...] = ()
        self._awaited: list[RoleSpec] = []

    @property
    def roles(self) -> frozenset[Role]:
        """The roles that are served once all is loaded."""
        return frozenset(spec.role for spec in self.specs)

    @property
    def awaited(self) -> frozenset[Role]:
        """The roles of which something is not loaded yet."""
        return frozenset(spec.role for spec in self._awaited)

    @property
    def verifier_count(self) -> int:
        """Verifiers among them."""
        return sum(spec.role is Role.VERIFIER for spec in self.specs)

    @property
    def takes_time(self) -> bool:
        """Whether a model is among them; a lookup and an archive are there at once."""
        models = (spec.model for spec in self.specs if spec.role is not Role.ARCHIVE)
        return any(model != ngram.MODEL_ID for model in models)

    def say(self, texts: Sequence[str]) -> None:
        """What will be loaded. Raises `BadRoleSpec`."""
        parsed = parse_role_specs(texts)
        for spec in parsed:
            if spec.role is Role.ARCHIVE:
                check_memory(archive_bytes(spec.model))
        self.specs = tuple(parsed)
        self._awaited = list(parsed)

    def arrived(self, spec: RoleSpec) -> None:
        """One of them is loaded."""
        self._awaited.remove(spec)

    def is_loading(self, model_id: str) -> bool:
        """Whether the model will be served as a verifier, and is not yet."""
        # A proposer is asked for by those who have seen its offer: nobody does before.
        awaited = (spec for spec in self._awaited if spec.role is Role.VERIFIER)
        return any(model_id_of(spec.model) == model_id for spec in awaited)

    async def prepare(self) -> None:
        """Finds local verifiers, and imports the libraries that loading needs.

        That holds up the event loop now and then: peers must not yet count on an answer.
        Raises a `ModelUnusable` or `BadParameters`.
        """
        here = () if self._is_group else self.specs
        verifiers = [spec.model for spec in here if spec.role is Role.VERIFIER]
        for model in verifiers:
            folder_here(model)
        if verifiers:
            await asyncio.to_thread(import_backend, self._backend)
        proposers = [spec.model for spec in self.specs if spec.role is Role.PROPOSER]
        for model in proposers:
            await asyncio.to_thread(import_proposer, model, self._backend)
        if Role.ARCHIVE in self.roles:
            await asyncio.to_thread(import_archives)

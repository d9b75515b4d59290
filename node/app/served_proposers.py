"""All proposers that a node serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.app.proposer_role import load_served_proposer
from kakeya_fleet.node.config.role_spec import RoleSpec, named_twice
from kakeya_fleet.node.links.features.feature_links import ConditionedProposer
from kakeya_fleet.node.roles.archive.drafter_folders import drafter_folder
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.watch.model_transfer import ModelTransfer


class ProposerSettings(Protocol):
    """What the proposers share; see `node.app.role_settings.RoleSettings`."""

    @property
    def dtype(self) -> str:
        """Number format of the computation."""
        ...

    @property
    def backend(self) -> str:
        """What computes."""
        ...


class ServedProposers:
    """The proposers by model id. Belongs to the event loop's thread.

    `by_model`, `conditioned` (those that take context vectors, as links need them) and
    `folders` (of drafters whose learned maps may be named) are always the same mappings.
    """

    def __init__(self, settings: ProposerSettings, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self.by_model: dict[str, ServedProposer] = {}
        self.conditioned: dict[str, ConditionedProposer] = {}
        self.folders: dict[str, Path] = {}

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of them."""
        return tuple(served.offer for served in self.by_model.values())

    async def load(self, spec: RoleSpec, transfer: ModelTransfer) -> None:
        """Loads and measures one. Raises `BadRoleSpec`, a `ModelUnusable` or `BadParameters`."""
        served = await load_served_proposer(
            spec.model,
            self._clock,
            dtype=self._settings.dtype,
            backend=self._settings.backend,
            progress=transfer.downloading,
            reading=transfer.reading,
        )
        model_id = served.offer.model_id
        if model_id in self.by_model:
            await served.close()
            raise named_twice(spec, model_id)
        encoder = served.proposer.encoder
        if isinstance(encoder, ContextEncoder):
            self.conditioned[model_id] = ConditionedProposer(
                encoder.weights, encoder.spec.hidden_size, served.offer.target_weights_digest
            )
        self.by_model[model_id] = served
        self.folders.update(await asyncio.to_thread(drafter_folder, spec.model))

    async def close(self) -> None:
        """Ends the models' threads."""
        for served in self.by_model.values():
            await served.close()

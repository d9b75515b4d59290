"""The proposer role: drafts for verifiers of this node and of others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kakeya.v1 import proposer_pb2_grpc
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder
from kakeya_fleet.engine.models.model_folder import model_id_of, resolve
from kakeya_fleet.engine.models.weight_choice import AUTO
from kakeya_fleet.engine.proposers.loading import load_proposer
from kakeya_fleet.engine.proposers.names import TARGET_MARK
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer
from kakeya_fleet.node.config.role_spec import BadRoleSpec, RoleSpec, named_twice
from kakeya_fleet.node.links.features.feature_links import ConditionedProposer, FeatureLinks
from kakeya_fleet.node.links.protocol.contract import LinkPurpose
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.roles.context import RoleContext
from kakeya_fleet.node.roles.contract import ModelUse, RoleService
from kakeya_fleet.node.roles.cycles import free_removed
from kakeya_fleet.node.roles.proposer.proposer_loading import load_served_proposer
from kakeya_fleet.node.roles.proposer.proposer_service import ProposerServicer
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.watch.model_transfer import model_transfer

PLAIN = ModelKind.AUTOREGRESSIVE
DRAFTERS_SHARE = 2
"""A plain model's drafts take one part of what verifiers' sessions may take, in so many."""


class ProposerRole:
    """A `NodeRole`. Belongs to the event loop's thread.

    `by_model`, `conditioned` (those that take context vectors, as links need them) and
    `folders` (of drafters whose learned maps may be named) are always the same mappings.
    `features` serves links for context vectors.
    """

    def __init__(self, context: RoleContext, table: LinkTable) -> None:
        """Context vectors come on links of `table`."""
        self._context = context
        self._table = table
        self.by_model: dict[str, ServedProposer] = {}
        self.conditioned: dict[str, ConditionedProposer] = {}
        self.folders: dict[str, Path] = {}
        self.features = FeatureLinks(self.conditioned, table)
        self._servicer = ProposerServicer(
            self.by_model,
            context.metrics,
            context.allowances,
            self.features.inbox,
        )

    @property
    def services(self) -> tuple[RoleService, ...]:
        """ProposerService."""
        add = partial(proposer_pb2_grpc.add_ProposerServiceServicer_to_server, self._servicer)
        return (RoleService("kakeya.v1.ProposerService", add),)

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of them."""
        return tuple(served.offer for served in self.by_model.values())

    @property
    def stream_count(self) -> int:
        """Draft streams that are served now."""
        return self._servicer.stream_count

    @property
    def draft_count(self) -> int:
        """Blocks that were drafted for streams since the start."""
        return self._servicer.draft_count

    @property
    def uses(self) -> Mapping[str, ModelUse]:
        """See `NodeRole.uses`: by draft streams, and by sessions of this node."""
        return {
            model_id: ModelUse(
                served.drafts_here or self._servicer.serves(served), served.use_count
            )
            for model_id, served in self.by_model.items()
        }

    async def open(self, spec: RoleSpec) -> str:
        """See `NodeRole.open`."""
        context, settings = self._context, self._context.settings
        with model_transfer(model_id_of(spec.model), context.activity) as transfer:
            load = partial(
                load_proposer,
                spec.model,
                backend=settings.backend,
                device=settings.device,
                dtype=settings.dtype,
                weights=spec.weights or settings.weights,
                kv_budget_bytes=settings.kv_budget_bytes // DRAFTERS_SHARE,
                progress=transfer.downloading,
                reading=transfer.reading,
            )
            served = await load_served_proposer(
                spec.model, load, context.clock, context.faults.of_worker
            )
            model_id = served.offer.model_id
            try:
                if model_id in self.by_model:
                    raise named_twice(spec, model_id)
                if spec.weights not in ("", AUTO) and served.offer.kind is not PLAIN:
                    raise _own_weights(spec, model_id)
                folders = {}
                if served.proposer.encoder is not None:
                    folders = await asyncio.to_thread(_drafter_folder, spec.model)
            except BaseException:
                await served.close()
                raise
        encoder = served.proposer.encoder
        if isinstance(encoder, ContextEncoder):
            self.conditioned[model_id] = ConditionedProposer(
                encoder.weights, encoder.spec.hidden_size, served.offer.target_weights_digest
            )
        self.by_model[model_id] = served
        self.folders.update(folders)
        return model_id

    async def remove(self, model_id: str, seconds: float) -> None:  # noqa: ARG002 the contract's
        """See `NodeRole.remove`; sessions that it drafted for go on without it at once."""
        await self._withdrawn(model_id)
        # A model's modules refer to each other.
        await free_removed()

    async def _withdrawn(self, model_id: str) -> None:
        served = self.by_model.pop(model_id)
        self.conditioned.pop(model_id, None)
        self.folders.pop(model_id, None)
        self._servicer.end_streams(served)
        for link in self._table:
            request = link.request
            if request.purpose is LinkPurpose.FEATURES and request.model_id == model_id:
                self._table.close(link.link_id, "ended: its proposer is served here no more")
        await served.withdraw()

    def sweep(self) -> None:
        """Nothing: a stream ends with its session."""

    async def drain(self, seconds: float) -> None:  # noqa: ARG002 the contract's
        """Refuses new drafts and ends the open streams: their sessions go on alone."""
        self._servicer.drain()

    async def close(self) -> None:
        """Ends the models' threads."""
        for served in self.by_model.values():
            await served.close()


def _own_weights(spec: RoleSpec, model_id: str) -> BadRoleSpec:
    return BadRoleSpec(
        f"{model_id} is no plain language model, and drafts with the weights that it has",
        f"leave out --weights {spec.weights}",
        spec=spec.model[:64],
    )


def _drafter_folder(name: str) -> dict[str, Path]:
    """Model id and folder of the DFlash drafter `MODEL` or `MODEL@TARGET`.

    Raises `ModelNotFound`.
    """
    has_target = TARGET_MARK in name and not Path(name).expanduser().is_dir()
    folder = resolve(name.rpartition(TARGET_MARK)[0] if has_target else name)
    return {folder.model_id: folder.path}

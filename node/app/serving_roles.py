"""What serves on a node: its roles, the links to and from them, and who hears of them.

An agent that serves nothing never imports this, nor what it is made of: see `node.app.roles`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

from kakeya.v1 import tensor_pb2_grpc
from kakeya.v1.capability_pb2 import MeasuredCodec
from kakeya_fleet.fleet.cards.card import ModelOffer, Role
from kakeya_fleet.node.app.codec_wire import codec_to_wire
from kakeya_fleet.node.app.role_ground import RoleGround
from kakeya_fleet.node.app.role_load import RoleLoad
from kakeya_fleet.node.links.protocol.contract import LinkMode, LinkPurpose
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.planning.codec_ledger import model_key
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.archive_role import ArchiveRole
from kakeya_fleet.node.roles.context import RoleContext
from kakeya_fleet.node.roles.contract import ModelUse, NodeRole, RoleService
from kakeya_fleet.node.roles.cycles import free_ended
from kakeya_fleet.node.roles.proposer.proposer_role import ProposerRole
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.verifier.verifier_role import VerifierRole
from kakeya_fleet.node.watch.background import FaultBook
from kakeya_fleet.node.watch.node_sample import Totals


class ServingRoles:
    """Belongs to one event loop."""

    def __init__(self, ground: RoleGround) -> None:
        settings, metrics, clock = ground.settings, ground.metrics, time.monotonic
        events = SessionEvents(ground.activity.events, partial(_name_of, ground.fleet))
        self.links = OpenLinks(
            ground.roads,
            metrics,
            mode=LinkMode(settings.links),
            settings=settings.link_settings,
            clock=clock,
            on_change=events.link_changed,
        )
        table = LinkTable(clock, ground.allowances)
        context = RoleContext(
            settings,
            ground.allowances,
            ground.expected,
            ground.fleet,
            self.links,
            metrics,
            ground.activity,
            ground.changed,
            clock,
            FaultBook(ground.activity.events, metrics),
        )
        self.proposer = ProposerRole(context, table)
        self.archive = ArchiveRole(context, self.proposer.folders)
        self.verifier = VerifierRole(context, self.proposer, self.archive, events, ground.observers)
        # In the order in which they are drained: generations are waited for last.
        self.by_role: Mapping[Role, NodeRole] = {
            Role.ARCHIVE: self.archive,
            Role.PROPOSER: self.proposer,
            Role.VERIFIER: self.verifier,
        }
        self._tensors = TensorServicer(
            table, metrics, self.links, {LinkPurpose.FEATURES: self.proposer.features}
        )

    @property
    def services(self) -> tuple[RoleService, ...]:
        """What they answer at the node's own port."""
        add = partial(tensor_pb2_grpc.add_TensorServiceServicer_to_server, self._tensors)
        own = (service for role in self.by_role.values() for service in role.services)
        return (RoleService("kakeya.v1.TensorService", add), *own)

    def sweep(self) -> None:
        """Ends what is idle for too long."""
        self._tensors.sweep()
        for role in self.by_role.values():
            role.sweep()
        if not self.verifier.sessions and not self.proposer.stream_count:
            free_ended()

    async def drain(self, seconds: float) -> None:
        """Refuses new work from the call on; generations get `seconds` to end."""
        self._tensors.drain()
        for role in self.by_role.values():
            await role.drain(seconds)

    async def close(self) -> None:
        """Closes sessions and their draft sources, then the models' threads."""
        await self.verifier.close()
        await self.links.close()
        await self.proposer.close()
        await self.archive.close()

    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of this node's models, verifiers first."""
        return (*self.verifier.offers, *self.proposer.offers)

    def uses(self) -> dict[tuple[Role, str], ModelUse]:
        """How the models that are served now are used."""
        return {
            (role, model_id): use
            for role, served in self.by_role.items()
            for model_id, use in served.uses.items()
        }

    def load_numbers(self) -> RoleLoad:
        """For GetNode."""
        kv = self.verifier.kv
        return RoleLoad(
            session_count=len(self.verifier.sessions),
            generating_count=self.verifier.generating_count,
            draft_stream_count=self.proposer.stream_count,
            kv_bytes=kv.kv_bytes,
            kv_budget_bytes=kv.kv_budget_bytes,
            archive_count=self.archive.open_count,
            archive_bytes=self.archive.used_bytes,
            archive_budget_bytes=self.archive.budget_bytes,
        )

    def measured_codecs(self) -> list[MeasuredCodec]:
        """By model, then from most bits to fewest; of those that are served now."""
        ledger = self.verifier.codecs
        return [
            codec_to_wire(model_id, served, rung)
            for model_id, served in sorted(self.verifier.by_model.items())
            for rung in ledger.rungs(model_key(served.verifier.info))
        ]

    def totals(self) -> Totals:
        """What they did since the node's start."""
        totals = self.verifier.totals
        return Totals(
            generated_token_count=totals.generated_token_count,
            prefilled_token_count=totals.prefilled_token_count,
            drafted_count=totals.drafted_count,
            accepted_count=totals.accepted_count,
            verify_forward_count=totals.verify_forward_count,
            draft_count=self.proposer.draft_count + totals.drafted_here_count,
            link_bytes=self.links.byte_count,
        )


def _name_of(fleet: FleetView, node_id: str) -> str:
    """A node's name for people."""
    for view in fleet.nodes():
        if view.card.node_id == node_id:
            return view.card.name
    return node_id[:12]

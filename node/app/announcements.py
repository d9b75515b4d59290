"""Keeps the node's card and its health at what it serves now."""

from __future__ import annotations

import asyncio

import structlog

from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.node.app.control_plane import ControlPlane
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.config.config import join_address, split_address
from kakeya_fleet.node.links.roads.host_roads import RingProbe, wants_ring
from kakeya_fleet.node.rpc.health import Health

_log = structlog.get_logger(__name__)


class Announcements:
    """Belongs to the event loop's thread."""

    def __init__(
        self, roles: Roles, control: ControlPlane, health: Health, ring_trial_seconds: float
    ) -> None:
        """`ring_trial_seconds` is how long those who wait for the node come before the trial."""
        self._ring_trial_seconds = ring_trial_seconds
        self._roles = roles
        self._control = control
        self._health = health
        self._tell_health()

    async def follow(self) -> None:
        """Announces a new card now and whenever the roles offer something else."""
        while True:
            self.tell()
            await self._roles.changed.wait()
            self._roles.changed.clear()

    def tell(self) -> None:
        """Brings card and health to what is served now."""
        self._tell_health()
        roles, maker = self._roles, self._control.card_maker
        offers, archive, loading = roles.offers(), roles.archive_offer(), bool(roles.awaited())
        card = maker.current.card
        # How much of an archive is free is no reason for a new card.
        known = (card.models, card.archive is not None, card.loading)
        if known != (offers, archive is not None, loading):
            free = system_memory.available_bytes()
            self._control.gossip.announce(maker.offers(offers, archive, free, loading=loading))

    async def tell_peers(self) -> None:
        """Does so, and tells some peers at once."""
        self.tell()
        await self._control.spread()

    async def offer_ring(self, probe: RingProbe) -> None:
        """Puts a ring on the card when this host can form one; `links` may forbid the trial.

        Waits for a first role: who serves nothing carries no tensors, and a trial starts two
        processes that load MLX.
        """
        control = self._control
        # MLX's ring speaks IPv4 only.
        usable = [address for address in control.own.addresses if not address.startswith("[")]
        if not wants_ring(control.ground.config.links) or not usable:
            return
        await self._roles.has_served.wait()
        await asyncio.sleep(self._ring_trial_seconds)
        reason = await probe.run()
        # Links that are open may have such a road now.
        self._roles.look_for_roads()
        if reason:
            _log.info("no_ring", reason=reason)
        else:
            # One that stays within its host is announced where other hosts do not reach it.
            port = split_address("bind", usable[0])[1]
            stays = control.ground.settings.keeps_tensors_here
            address = join_address("127.0.0.1", port) if stays else usable[0]
            control.gossip.announce(control.card_maker.offer_ring(address))

    def _tell_health(self) -> None:
        self._health.tell(self._roles.health(), whole=self._roles.begun)

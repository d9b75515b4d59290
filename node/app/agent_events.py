"""What an agent says of its own life: to its terminal, or as JSON lines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.fleet.views.advice import Advice


@dataclass(frozen=True, slots=True)
class AgentEvents:
    """Makes the events of one node.

    Addresses are host:port as they are now, that of HTTP empty without it.

    In a fleet with an authority programs of this machine call `local_address`, members `address`,
    and applications with a key `applications_address`, or `https_address` by HTTPS.
    """

    node_id: str
    name: str
    fleet_name: str
    address_now: Callable[[], str]
    http_address_now: Callable[[], str]
    local_address: str = ""
    applications_address: str = ""
    https_address: str = ""
    taken_ports: tuple[int, ...] = ()
    """At which it would answer were they free."""

    @property
    def address(self) -> str:
        """Where members call, and everybody in a fleet without an authority."""
        return self.address_now()

    @property
    def http_address(self) -> str:
        """Where HTTP answers."""
        return self.http_address_now()

    def joined(self, serve: Sequence[str]) -> Mapping[str, object]:
        """It is a member of the fleet, and loads what it will serve."""
        return {"event": "joined", **self._where(), "serve": list(serve)}

    def ready(self, offers: Sequence[ModelOffer], mdns: str, state: Path) -> Mapping[str, object]:
        """Everything that it serves is loaded. `mdns` is on, off, or what is wrong with it."""
        return {
            "event": "ready",
            **self._where(),
            "metrics_address": self.http_address,
            "models": [{"model_id": offer.model_id, "role": offer.role.value} for offer in offers],
            "mdns": mdns,
            "pid": os.getpid(),
            "state": str(state),
            "taken_ports": list(self.taken_ports),
        }

    def advice(self, advice: Advice) -> Mapping[str, object]:
        """What a person may do next. `lacks` is a role, empty when the fleet has each."""
        return {
            "event": "advice",
            "lacks": advice.lacks.value if advice.lacks else "",
            "verifier": advice.verifier,
            "free_name": advice.name,
            "address": self.address,
            "local_address": self.local_address,
            "fleet_name": self.fleet_name,
        }

    def draining(self, drain_seconds: float) -> Mapping[str, object]:
        """It leaves; running answers get so long."""
        return {"event": "draining", "node_id": self.node_id, "drain_seconds": drain_seconds}

    def _where(self) -> dict[str, object]:
        where: dict[str, object] = {
            "node_id": self.node_id,
            "name": self.name,
            "address": self.address,
            "http_address": self.http_address,
            "fleet_name": self.fleet_name,
        }
        if self.local_address:
            where["local_address"] = self.local_address
        if self.applications_address:
            where["applications_address"] = self.applications_address
        if self.https_address:
            where["https_address"] = self.https_address
        return where

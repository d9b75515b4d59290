"""All verifiers that a node serves: of its own process, and of a group of ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.config.role_spec import BadRoleSpec, RoleSpec, named_twice
from kakeya_fleet.node.roles.groups.group_settings import GroupSource
from kakeya_fleet.node.roles.verifier.group_serving import ServedGroup
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.verifier.verifier_loading import Admission, load_served_verifier
from kakeya_fleet.node.watch.model_transfer import ModelTransfer


class VerifierSettings(Protocol):
    """What the verifiers share; see `node.app.roles.RoleSettings`."""

    @property
    def kv_budget_bytes(self) -> int:
        """K/V bytes of all sessions."""
        ...

    @property
    def dtype(self) -> str:
        """Number format of the computation."""
        ...

    @property
    def backend(self) -> str:
        """What computes."""
        ...

    @property
    def group(self) -> GroupSource | None:
        """The ranks that serve the verifier; None for this process."""
        ...


class ServedVerifiers:
    """The verifiers by model id. Belongs to the event loop's thread."""

    def __init__(
        self,
        settings: VerifierSettings,
        registry: SessionRegistry[OpenSession],
        clock: Callable[[], float],
        events: SessionEvents,
    ) -> None:
        """Their sessions are those of `registry`; `clock` gives monotonic seconds."""
        self._events = events
        self._settings = settings
        self._registry = registry
        self._clock = clock
        self._served: dict[str, ServedVerifier] = {}
        self._group: ServedGroup | None = None
        self._group_started = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when another verifier is served than before; whoever takes notice clears it."""

    @property
    def by_model(self) -> Mapping[str, ServedVerifier]:
        """Those that are served now, always the same mapping."""
        return self._served

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of them."""
        return tuple(served.offer for served in self._served.values())

    @property
    def kv_bytes(self) -> int:
        """K/V bytes of all sessions."""
        return sum(served.budget.used_bytes for served in self._served.values())

    @property
    def kv_budget_bytes(self) -> int:
        """K/V bytes that all sessions may take; 0 without a verifier."""
        return self._settings.kv_budget_bytes if self._served else 0

    @property
    def free_kv_bytes(self) -> int | None:
        """K/V bytes that new sessions may take now; None without a verifier."""
        if not self._served:
            return None
        return sum(
            self._registry.available_bytes(served.budget) for served in self._served.values()
        )

    def check_count(self, count: int) -> None:
        """Raises `BadRoleSpec` when `count` verifiers are too many or too few for a group."""
        group = self._settings.group
        if group is not None and count != 1:
            raise BadRoleSpec(
                f"{count} verifiers are given for the group of {group.path}",
                "a hostfile serves one: give one --serve verifier=MODEL",
                spec="verifier",
            )

    async def load(self, spec: RoleSpec, count: int, transfer: ModelTransfer) -> None:
        """Loads and measures one of `count`, here or on the ranks of the group.

        Raises `BadRoleSpec`, `engine.errors.ModelUnusable`, `BadParameters`; for a
        group also `BadGroup`, `GroupNotStarted` and `fleet.hostfiles.hostfile.HostfileError`.
        """
        settings = self._settings
        admission = Admission(self._registry, settings.kv_budget_bytes // count, self._clock)
        if settings.group is not None:
            self._group = ServedGroup(
                settings.group,
                spec.model,
                admission,
                dtype=settings.dtype,
                backend=settings.backend,
                verifiers=self._served,
                on_change=self.changed.set,
                events=self._events,
            )
            transfer.load_begins()
            await self._group.start()
            self._group_started.set()
            return
        served = await load_served_verifier(
            spec.model,
            admission,
            dtype=settings.dtype,
            backend=settings.backend,
            progress=transfer.downloading,
            reading=transfer.reading,
        )
        model_id = served.offer.model_id
        if model_id in self._served:
            await served.worker.close()
            raise named_twice(spec, model_id)
        self._served[model_id] = served

    async def run(self) -> None:
        """Starts the group again whenever it is lost, until cancelled."""
        if self._settings.group is None:
            return
        await self._group_started.wait()
        if self._group is not None:
            await self._group.run()

    async def close(self) -> None:
        """Closes the group, then the models' threads."""
        # A step that waits for a rank ends with the group, not at the rank's deadline.
        if self._group is not None:
            await self._group.close()
        for served in self._served.values():
            await served.worker.close()

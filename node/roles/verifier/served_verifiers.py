"""All verifiers that a node serves: of its own process, and of a group of ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from kakeya_fleet.engine.sessions.session_store import EndReason
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.config.role_spec import BadRoleSpec, RoleSpec, named_twice
from kakeya_fleet.node.roles.groups.group_settings import GroupSource
from kakeya_fleet.node.roles.verifier.group_serving import ServedGroup
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_words import SessionWords
from kakeya_fleet.node.roles.verifier.verifier_loading import StoreSettings, load_served_verifier
from kakeya_fleet.node.watch.model_transfer import ModelTransfer


class VerifierSettings(Protocol):
    """What the verifiers share; see `node.app.roles.RoleSettings`."""

    @property
    def kv_budget_bytes(self) -> int:
        """K/V bytes of all sessions."""
        ...

    @property
    def session_ttl_seconds(self) -> float:
        """Idle seconds after which a session is evicted."""
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
        clock: Callable[[], float],
        on_end: Callable[[str, EndReason], None],
        words: SessionWords,
    ) -> None:
        """`on_end(session_id, reason)` hears of every session that ends, in the loop's thread."""
        self._words = words
        self._settings = settings
        self._clock = clock
        self._on_end = on_end
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
    def session_count(self) -> int:
        """Open sessions of all."""
        return sum(len(served.store) for served in self._served.values())

    @property
    def kv_bytes(self) -> int:
        """K/V bytes of all sessions."""
        return sum(served.store.kv_bytes for served in self._served.values())

    @property
    def kv_budget_bytes(self) -> int:
        """K/V bytes that all sessions may take; 0 without a verifier."""
        return self._settings.kv_budget_bytes if self._served else 0

    @property
    def free_kv_bytes(self) -> int | None:
        """K/V bytes that new sessions may take now; None without a verifier."""
        if not self._served:
            return None
        return sum(served.store.available_bytes for served in self._served.values())

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
        loop = asyncio.get_running_loop()

        def on_end(session_id: str, reason: EndReason) -> None:
            loop.call_soon_threadsafe(self._on_end, session_id, reason)

        settings = self._settings
        store = StoreSettings(
            budget_bytes=settings.kv_budget_bytes // count,
            ttl_seconds=settings.session_ttl_seconds,
            clock=self._clock,
            on_end=on_end,
        )
        if settings.group is not None:
            self._group = ServedGroup(
                settings.group,
                spec.model,
                store,
                dtype=settings.dtype,
                backend=settings.backend,
                verifiers=self._served,
                on_change=self.changed.set,
                words=self._words,
            )
            transfer.load_begins()
            await self._group.start()
            self._group_started.set()
            return
        served = await load_served_verifier(
            spec.model,
            store,
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

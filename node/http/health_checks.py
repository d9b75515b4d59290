"""Whether a node does what it is there for: what /health says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.node.http.canary import Canary, Sign
from kakeya_fleet.node.http.recent_tokens import RecentTokens
from kakeya_fleet.node.http.settings import HealthSettings, HealthyRoles
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one model in one role; `reason` is empty when all is well."""

    role: Role
    model_id: str
    state: str
    reason: str = ""
    message: str = ""
    seconds_ago: float | None = None

    def body(self) -> dict[str, object]:
        """As /health shows it."""
        return {
            "role": self.role.value,
            "model": self.model_id,
            "state": self.state,
            "reason": self.reason or None,
            "message": self.message or None,
            "proved_seconds_ago": self.seconds_ago,
        }


class HealthChecks:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        roles: HealthyRoles,
        recent: RecentTokens,
        clock: Callable[[], float],
        settings: HealthSettings,
    ) -> None:
        self._settings = settings
        self._roles = roles
        self._recent = recent
        self._clock = clock
        # With a verifier that is served no more its canary goes, and their memory.
        self._canaries: WeakKeyDictionary[ServedVerifier, Canary] = WeakKeyDictionary()

    async def findings(self) -> Sequence[Finding]:
        """Of each role, verifiers first; takes `canary_seconds` at most."""
        verifiers = await asyncio.gather(
            *(self._verifier(*each) for each in list(self._roles.verifiers.items()))
        )
        awaited = self._roles.awaited()
        # What a running node adds takes nothing from those who use it.
        why = ("", "") if self._roles.begun else ("LOADING", "the node loads its models; come back")
        loading = [
            Finding(role, "", "loading", *why)
            for role in sorted(awaited, key=lambda role: role.value)
        ]
        lost = 0 if Role.VERIFIER in awaited else self._roles.verifier_count - len(verifiers)
        missing = [
            Finding(
                Role.VERIFIER,
                "",
                "lost",
                "GROUP_LOST",
                "the ranks that serve the verifier are lost; the node starts them again",
            )
        ] * lost
        others = [
            Finding(offer.role, offer.model_id, "serving")
            for offer in self._roles.offers()
            if offer.role is not Role.VERIFIER
        ]
        archive = self._roles.archive_offer()
        if archive is not None:
            others.append(Finding(Role.ARCHIVE, "", "serving"))
        return [*verifiers, *missing, *others, *loading]

    def close(self) -> None:
        """Gives up the canaries that wait."""
        for canary in self._canaries.values():
            canary.close()

    async def _verifier(self, model_id: str, served: ServedVerifier) -> Finding:
        since = self._recent.seconds_since(model_id)
        if since is not None and since < self._settings.fresh_seconds:
            return Finding(Role.VERIFIER, model_id, "generating", seconds_ago=since)
        canary = self._canary(served)
        sign = canary.last
        waiting = canary.waiting_seconds
        if waiting or sign is None or self._clock() - sign.at >= self._settings.fresh_seconds:
            sign = await canary.look(max(0.0, self._settings.canary_seconds - waiting))
        if sign is not None:
            return self._found(model_id, sign)
        return Finding(
            Role.VERIFIER,
            model_id,
            "wedged",
            "WEDGED",
            f"no forward of the model has ended for {canary.waiting_seconds:.0f} s; "
            "look at the node's log, and start it again when it stays so",
            since,
        )

    def _found(self, model_id: str, sign: Sign) -> Finding:
        ago = max(0.0, self._clock() - sign.at)
        if not sign.fault:
            return Finding(Role.VERIFIER, model_id, "answering", seconds_ago=ago)
        reason, _, message = sign.fault.partition(": ")
        return Finding(Role.VERIFIER, model_id, "failing", reason, message, ago)

    def _canary(self, served: ServedVerifier) -> Canary:
        canary = self._canaries.get(served)
        if canary is None:
            canary = self._canaries[served] = Canary(served, self._clock)
        return canary

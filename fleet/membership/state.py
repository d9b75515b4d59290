"""What membership remembers between its steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.membership.awareness import Awareness
from kakeya_fleet.fleet.membership.clone_watch import CloneWatch
from kakeya_fleet.fleet.membership.hot_registers import HotRegisters
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.round_robin import RoundRobin
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.suspicion import Doubt, Suspicion

MAX_SEEDS = 256


@dataclass(slots=True)
class Call:
    """An exchange that has not been answered; times in monotonic seconds."""

    started_at: float
    timeout_seconds: float


@dataclass(slots=True)
class Probe:
    """Helpers that have not told yet whether they reached a node."""

    awaited: set[str]
    expires_at: float
    unreached_count: int = 0


@dataclass(slots=True)
class Membership:
    """The state that `step` changes. Owned by one task.

    `peers` have answered this node, `newcomers` not yet. `seeds` are addresses (host:port)
    that may belong to members; `ways` names for a node the helper that reached it last.
    The digest is told in parts, the next one from the key `digest_told` on. The own incarnation
    is to be `needed` or higher, has been asked to be `rising_to`, at `refuted_at`.
    """

    registry: Registry
    settings: MembershipSettings = field(default_factory=MembershipSettings)
    seeds: list[str] = field(default_factory=list)
    peers: RoundRobin = field(default_factory=RoundRobin)
    newcomers: RoundRobin = field(default_factory=RoundRobin)
    suspicions: dict[str, Suspicion] = field(default_factory=dict)
    doubts: dict[str, Doubt] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    probes: dict[str, Probe] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    awareness: Awareness = field(default_factory=Awareness)
    hot_cards: HotRegisters = field(default_factory=HotRegisters)
    hot_rumours: HotRegisters = field(default_factory=HotRegisters)
    clone_watch: CloneWatch = field(default_factory=CloneWatch)
    ticked_at: float | None = None
    dialled_at: float | None = None
    digest_told: int = 0
    needed: int = -1
    rising_to: int = -1
    refuted_at: float | None = None
    is_leaving: bool = False

    def __post_init__(self) -> None:
        self.hot_cards.heat(self.registry.own_id)

    def is_live_peer(self, node_id: str) -> bool:
        """Whether it is another node, known and ALIVE or SUSPECT."""
        return (
            node_id != self.registry.own_id
            and node_id in self.registry
            and not self.registry.liveness(node_id).is_tombstone
        )

    def found(self, node_id: str) -> Liveness:
        """The node's liveness as this one found it: SUSPECT only by its own evidence.

        Whom others alone suspect goes on to be used, so that forged suspicions cost nobody
        its sessions. Raises `NodeNotFound`.
        """
        liveness = self.registry.liveness(node_id)
        if liveness is Liveness.SUSPECT and not self.suspicions[node_id].is_own:
            return Liveness.ALIVE
        return liveness

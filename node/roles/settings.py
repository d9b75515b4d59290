"""Settings of what a node serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.roles.groups.group_settings import GroupSource
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust


@dataclass(frozen=True, slots=True)
class RestorerSettings:
    """Limits of the sessions' restorers, in seconds.

    `deadline` is the longest wait for one answer, `rebuild` that for another
    archive when one was lost, `lease` what an archive lies unused.
    """

    deadline: float = 2.0
    rebuild: float = 15.0
    lease: float = 3600.0

    map_loading: float = 10.0
    """For opening an archive where a learned map may have to be loaded first."""

    retry: float = 0.25
    """Between two looks for another archive while a session waits for one."""

    full_grace: float = 1.0
    """Behind a loss: what the session had in other archives is free again within it."""

    next_range: Backoff = Backoff(0.5, 5.0)
    """An archive for the next range is asked for again after these pauses."""

    audit_answers: int = 64
    """Answers of an archive for each piece (1 MiB) that is read back to spot-check it.

    With Q layers of evicted positions a step has Q answers, and an answer to P positions of b
    bytes a layer takes r = ceil(P b / 1 MiB) pieces. So one of each n = max(Q, r) x this
    answers at most is computed again, and it may be any. An archive that lies in a share f of
    its answers is found within N steps with a probability of at least

        1 - (1 - f)^(floor(N Q / (r x this)) - 1)

    since the answer that is looked at may be of the whole time before. One that always lies
    is found within 2 r x this / Q steps; so is, of the layer that is looked at, one bit that
    changed in what it keeps.
    """

    audit_bytes: int = 256 << 20
    """For all audits of this node at once: each takes a chunk of 8,192 positions of a layer."""

    distrust: float = 3600.0
    """An archive that gave wrong numbers is asked for nothing by this node for so long."""


@dataclass(frozen=True, slots=True)
class SessionWatchSettings:
    """How often those who watch a node's sessions are told of them."""

    least_seconds: float = 0.1
    """Between two messages about one session."""

    messages_per_second: float = 60.0
    """To all watchers together, of what goes on by itself: each takes some 0.3 ms of a core.

    With n sessions and m watchers each session is told of every n m / this seconds, if that
    is longer; what people wait for is told within `least_seconds` all the same.
    """

    quiet_seconds: float = 30.0
    """A proposer that is dropped again for the same reason is one event in that time."""


@dataclass(frozen=True, slots=True)
class CodecSettings:
    """When verifiers measure the codecs that pack their sessions, and where that is kept."""

    samples: bool = True
    """Whether they are measured at all."""

    share: float = 0.02
    """Of the time, at most: a sampling that computed for s seconds is followed by s (1 / this - 1)
    seconds without one. Two forwards of 1,024 tokens that take 4 s are begun every 200 s."""

    quiet_seconds: float = 5.0
    """No session of the node did anything for so long: a client between two turns is not away."""

    kept_seconds: float = 600.0
    """A history that could not be computed within it is let go."""

    histories: int = 8
    """The latest that wait to be computed, each 1,024 tokens at most: they are in memory alone."""

    file: Path | None = None
    """Where it is kept; None for in memory alone."""


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """Limits of the roles."""

    kv_budget_bytes: int = 1 << 30
    """K/V bytes of all sessions; divided evenly among the node's verifiers."""
    session_ttl_seconds: float = 1800.0
    """Idle seconds after which a session is evicted."""
    sweep_seconds: float = 5.0
    """Idle sessions and archives are looked for so often, or ten times in a session's time."""
    rest_seconds: float = 60.0
    """Idle seconds after which a session gives up its draft stream.

    A proposer serves a limited number, and opening one again costs one prefix.
    """
    spare_seconds: float = 60.0
    """Memory of ended sessions that no other takes in that time goes back to the machine."""
    draft_deadline_seconds: float = 0.25
    """Longest wait of a verifier for one draft."""
    least_draft_opening_seconds: float = 2.0
    """For what comes before a first draft, a stream or an encoder, at least."""
    dtype: str = "auto"
    """Number format of verifiers and proposers; auto is each checkpoint's own."""
    weights: str = "auto"
    """What verifiers' products take weights as; see `engine.models.weight_choice`."""
    backend: str = "auto"
    """What computes: torch, mlx or auto."""
    device: str = "auto"
    """What the models are computed on; see `engine.contracts.device`."""
    links: str = "auto"
    """What carries tensors between nodes: grpc, local, ring or auto."""
    link_settings: LinkSettings = field(default_factory=LinkSettings)
    """When links take roads and leave them, and how long they wait for what."""
    host: str = "127.0.0.1"
    """Where an archive listens, at a port of its own."""
    group: GroupSource | None = None
    """The hostfile of the ranks that serve the verifier; None for this process."""
    restorers: RestorerSettings = field(default_factory=RestorerSettings)
    """Limits of what restores the sessions' evicted positions."""
    watch: SessionWatchSettings = field(default_factory=SessionWatchSettings)
    """How often watchers of the sessions are told of them."""
    codecs: CodecSettings = field(default_factory=CodecSettings)
    """When codecs are measured, and where that is kept."""
    trust: Trust | None = None
    """Who is a member, where the fleet has an authority: others are not served."""
    channels: Channels = field(default_factory=Channels)
    """Opens the channels to other nodes, of the same trust."""
    trusted_network: bool = False
    """Whether tensors may go between hosts in the clear though the fleet has an authority."""

    @property
    def draft_opening_seconds(self) -> float:
        """Longest wait for a draft stream to open, or for the encoder of a proposer's vectors.

        Whoever waits longer for a draft waits as long for what it needs.
        """
        return max(self.least_draft_opening_seconds, self.draft_deadline_seconds)

    @property
    def keeps_tensors_here(self) -> bool:
        """Whether what carries tensors in the clear may do so within this host alone."""
        return self.trust is not None and not self.trusted_network

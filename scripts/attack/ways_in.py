"""Who attacks, and how each reaches the ports of one agent of a fleet with an authority.

A *member* shows a certificate of the fleet, a *stranger* one of another fleet, *nobody* none; a
program of the agent's machine shows none either and needs none where it may call. A *joiner* has
the code of an invitation, or guesses it.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import grpc.aio

from kakeya.v1 import archive_pb2, archive_pb2_grpc
from kakeya_fleet.node.membership.identity import Identity, load_or_create
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.tls import client_context
from kakeya_fleet.node.trust.trust import Trust
from scripts.attack import dashboard_process
from scripts.attack.archive_frames import ArchiveFuzzer
from scripts.attack.calls import CallFuzzer
from scripts.attack.http2_frames import FrameFuzzer, preface_and_frames
from scripts.attack.http_requests import HttpFuzzer
from scripts.attack.join_tries import JoinFuzzer
from scripts.attack.road_sockets import RoadFuzzer
from scripts.attack.seeds import seeds_for
from scripts.attack.subject import Subject, attacked
from scripts.attack.tally import Tally
from scripts.attack.tls_connections import StrangerFuzzer, context_of
from scripts.support.trusted_pair import IDENTITY, trusted_pair

RAW_SHARE = 0.05
"""Of all messages, at most, for each port that takes raw bytes: they cost less than calls do."""
BROWSERS = 4
"""At the dashboard's port, whose streams of events are silent for most of a connection."""
KEEPER = "keeper"
SESSION_TTL_SECONDS = 60
"""Of sessions that callers leave open: each tenth of a long run has as many of them, as each half
hour has where nothing is said."""


class Fuzzer(Protocol):
    """A caller who does one wrong thing after the other."""

    async def once(self) -> None:
        """Does the next one."""
        ...


Make = Callable[[Tally, random.Random], Fuzzer]


@dataclass(frozen=True, slots=True)
class Attacker:
    """One caller. Of all messages at most the share `at_most` are those of his `service`."""

    make: Make
    service: str = ""
    at_most: float = 1.0


@dataclass(slots=True)
class Ways:
    """The agent, and what is needed to call it as anybody.

    `stranger` is the file of another fleet's certificate, `joiner` nobody's identity yet.
    """

    subject: Subject
    member: Trust
    stranger: Path
    joiner: Identity
    owner_key: str
    _channels: list[grpc.aio.Channel] = field(default_factory=list)

    async def close(self) -> None:
        """Closes all channels."""
        for channel in self._channels:
            await channel.close()

    def local(self) -> grpc.aio.Channel:
        """A connection of its own to where programs of the machine call."""
        # Callers with the same options would share one.
        options = (("grpc.use_local_subchannel_pool", 1),)
        return self._kept(grpc.aio.insecure_channel(self.subject.address, options=options))

    def of_member(self, address: str) -> grpc.aio.Channel:
        """A connection of its own as the member to one of the agent's ports."""
        channel = Channels(self.member).open(address, self.subject.agent.node_id)
        return self._kept(channel)

    async def data_address(self, archives: str) -> str:
        """Where archives take frames."""
        seeds = await seeds_for(self.local(), random.Random(0))
        stub = archive_pb2_grpc.ArchiveServiceStub(self.of_member(archives))
        opened = await stub.OpenArchive(seeds.archive(), timeout=20)
        await stub.CloseArchive(archive_pb2.CloseArchiveRequest(archive_id=opened.archive_id))
        return f"{archives.rpartition(':')[0]}:{opened.data_port}"

    def _kept(self, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        self._channels.append(channel)
        return channel


async def attackers(ways: Ways, callers: int, dashboard: str) -> list[Attacker]:
    """`callers` of gRPC, half of them members, and some for each port of another kind.

    `dashboard` is where it serves, empty where there is none.
    """
    archives = await ways.subject.archive_address()
    found = [_calling(ways, archives, is_member=bool(index % 2)) for index in range(callers)]
    for _ in range(max(1, callers // 16)):
        found += _behind_doors(ways, archives)
    found += _strangers(ways, archives, await ways.data_address(archives))
    joining = partial(JoinFuzzer, ways.local(), ways.owner_key, ways.joiner)
    found.append(Attacker(joining))
    if dashboard:
        service = "dashboard"

        def browse(tally: Tally, rng: random.Random) -> HttpFuzzer:
            return HttpFuzzer(dashboard, tally, rng, dashboard_process.SEEDS, service)

        found += [Attacker(browse, service, RAW_SHARE)] * BROWSERS
    return found


def _calling(ways: Ways, archives: str, *, is_member: bool) -> Attacker:
    if not is_member:
        own = ways.local()
        return Attacker(partial(CallFuzzer, own, own, caller="a program of the machine"))
    own, kept = ways.of_member(ways.subject.member_address), ways.of_member(archives)
    node_id = ways.member.node_id
    return Attacker(partial(CallFuzzer, own, kept, caller="a member", node_id=node_id))


def _behind_doors(ways: Ways, archives: str) -> Sequence[Attacker]:
    """Those who may come in, at the ports that are not of gRPC or not by its libraries."""
    subject = ways.subject
    own, kept = ways.of_member(subject.member_address), ways.of_member(archives)
    tls = client_context(ways.member)

    def frames(tally: Tally, rng: random.Random) -> FrameFuzzer:
        return FrameFuzzer(subject.address, tally, rng)

    def sealed_frames(tally: Tally, rng: random.Random) -> FrameFuzzer:
        context = client_context(ways.member)
        context.set_alpn_protocols(["h2"])
        return FrameFuzzer(subject.member_address, tally, rng, context, "member port")

    def deposits(tally: Tally, rng: random.Random) -> ArchiveFuzzer:
        return ArchiveFuzzer(own, kept, tally, rng, tls)

    return (
        Attacker(frames, "grpc port", RAW_SHARE),
        Attacker(sealed_frames, "member port", RAW_SHARE),
        Attacker(deposits),
        Attacker(partial(HttpFuzzer, subject.http_address), "http", RAW_SHARE),
        Attacker(partial(RoadFuzzer, own, ways.member.node_id)),
    )


def _strangers(ways: Ways, archives: str, data: str) -> Iterator[Attacker]:
    """Those who may not come in, at every port that is for members alone."""
    addresses = (ways.subject.member_address, archives, data)
    callers = {
        "a stranger": context_of(ways.stranger),
        "nobody, by TLS": context_of(None),
        "nobody, in plain text": None,
    }
    for caller, context in callers.items():
        service = f"ports of members: {caller}"

        def make(
            tally: Tally,
            rng: random.Random,
            context: ssl.SSLContext | None = context,
            service: str = service,
        ) -> StrangerFuzzer:
            return StrangerFuzzer(addresses, context, preface_and_frames, service, tally, rng)

        yield Attacker(make, service, RAW_SHARE)


@contextmanager
def trusted() -> Iterator[Ways]:
    """An agent with all roles that keeps a fleet, and who attacks it."""
    with TemporaryDirectory(prefix="kakeya-") as scratch:
        folder = Path(scratch)
        keeper, member = trusted_pair(folder, f"attack-{KEEPER}")
        stranger, _ = trusted_pair(folder / "another")
        joiner = load_or_create(folder / IDENTITY)
        own = {"KAKEYA_SESSION_TTL_SECONDS": str(SESSION_TTL_SECONDS)}
        with attacked(KEEPER, environment=own, directory=folder) as subject:
            yield Ways(
                subject, member, stranger.files.member_file, joiner, keeper.files.owner_key()
            )

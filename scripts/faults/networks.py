"""Rows 5 to 10: networks that are cut, lose, delay and reorder."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Literal

from kakeya import AsyncClient, KakeyaError, Liveness
from scripts.bench.network_namespaces import FAR, NEAR, TwoNamespaces, what_is_missing
from scripts.bench.slow_wire import Line
from scripts.faults.lost_processes import ms
from scripts.faults.machines import Machine, Machines, on
from scripts.faults.row import NotRunHere, Outcome, Row
from scripts.faults.scene import Scene, alive_at, said, see_each_other, until
from scripts.faults.streams import alone, knows_the_way, opened, streamed
from scripts.support.agent_process import AgentProcess

PARTITION_SECONDS = 60.0
DELAYED = Line(delay_seconds=0.1)
"""200 ms a round trip."""
RESTLESS = Line(delay_seconds=0.01, jitter_seconds=0.05, repeated=0.05)
"""Packets that overtake each other, and one in twenty twice."""
TOKENS = 256
TURNS = 8
CHOICES: tuple[Literal["off", "auto"], ...] = ("off", "auto")


async def _fleet(
    scene: Scene, machines: Sequence[Machine], roles: Sequence[str | None]
) -> list[AgentProcess]:
    """A node a machine; the first one is the seed peer of all others."""
    agents: list[AgentProcess] = []
    for number, (machine, role) in enumerate(zip(machines, roles, strict=True)):
        peers = [await asyncio.to_thread(lambda: agents[0].address)] if agents else []
        served = (role,) if role else ()
        agents.append(
            scene.start(
                f"node-{number}", *served, peers=peers, **on(machine.behind, machine.address)
            )
        )
    await see_each_other(agents, 120.0)
    return agents


async def partition(scene: Scene) -> Outcome:
    """Row 5."""
    served = ("verifier=tiny", "verifier=tiny", None, None)
    with Machines(len(served)) as machines:
        agents = await _fleet(scene, machines.all, served)
        clients = [await scene.client(each) for each in agents]
        wanted = (await alone(clients[0], 40)).token_ids
        halves = ([machines.all[0], machines.all[2]], [machines.all[1], machines.all[3]])
        machines.cut(*halves, both_ways=True)
        began = time.monotonic()
        answers, asked = 0, 0
        while time.monotonic() - began < PARTITION_SECONDS:
            # By the node of each half that serves nothing itself, too.
            for client in clients:
                asked += 1
                answers += await _same_answer(client, wanted)
            await asyncio.sleep(1.0)
        machines.heal()
        equal = await see_each_other(agents, 60.0)
    return Outcome(
        equal <= 30.0 and answers == asked,
        f"{answers} of {asked} answers asked for on both sides came, in {PARTITION_SECONDS:.0f} s; "
        f"equal roots {equal:.1f} s after it healed",
        {"asked": asked, "answered": answers, "equal_roots_after_seconds": equal},
    )


async def _same_answer(client: AsyncClient, wanted: Sequence[int]) -> bool:
    try:
        return (await alone(client, len(wanted))).token_ids == wanted
    except (KakeyaError, TimeoutError):
        return False


async def one_way(scene: Scene) -> Outcome:
    """Row 6."""
    with Machines(4) as machines:
        agents = await _fleet(scene, machines.all, (None,) * 4)
        machines.cut(machines.all[:1], machines.all[1:2], both_ways=False)
        return await _nobody_dies(scene, agents, "what one of 4 nodes sends to another is lost")


async def loss(scene: Scene) -> Outcome:
    """Row 8."""
    with Machines(10) as machines:
        agents = await _fleet(scene, machines.all, (None,) * 10)
        for machine in machines.all:
            machine.loses(["numgen random mod 100 < 30 drop"])
        return await _nobody_dies(scene, agents, "30 % of all packets to 10 nodes are lost")


async def _nobody_dies(scene: Scene, agents: Sequence[AgentProcess], what: str) -> Outcome:
    await asyncio.sleep(scene.watched_seconds)
    deaths = sum(len(said(agent, "peer_dead")) for agent in agents)
    suspicions = sum(len(said(agent, "peer_suspect")) for agent in agents)
    minutes = scene.watched_seconds / 60
    figures: dict[str, object] = {
        "nodes": len(agents),
        "watched_seconds": scene.watched_seconds,
        "false_deaths": deaths,
        "suspicions": suspicions,
    }
    return Outcome(
        deaths == 0,
        f"{what}: {deaths} false deaths and {suspicions} suspicions in {minutes:g} minutes",
        figures,
    )


async def bridge(scene: Scene) -> Outcome:
    """Row 7."""
    with Machines(3) as machines:
        left, _, right = machines.all
        agents = await _fleet(scene, machines.all, (None,) * 3)
        machines.cut([left], [right], both_ways=True)
        # What a node's card says changes when it is started again: that has to come across.
        cut_at = time.monotonic()
        peer = agents[1].address
        agents[0].kill()
        again = scene.start("node-0", peers=[peer], **on(left.behind, left.address))
        await asyncio.to_thread(lambda: again.ready)
        ready_at = time.monotonic()
        far = await scene.client(agents[2])

        async def is_known() -> bool:
            nodes = await far.fleet.nodes()
            return any(
                node.node_id == again.node_id
                and node.liveness is Liveness.ALIVE
                and node.card is not None
                and node.card.incarnation >= int(str(newest))
                for node in nodes
            )

        own = await (await scene.client(again)).fleet.node()
        newest = own.card.incarnation
        known = await until(is_known)
        came = time.monotonic() - ready_at
        deaths_before = len(said(agents[2], "peer_dead"))
        await asyncio.sleep(min(30.0, scene.watched_seconds))
        still = again.node_id in await alive_at(far)
        deaths = len(said(agents[2], "peer_dead")) - deaths_before
    return Outcome(
        known < math.inf and still and deaths == 0,
        f"the card of one end was at the other {came:.1f} s after it was ready; "
        f"{deaths} false deaths in the 30 s after",
        {
            "came_through_after_seconds": came,
            "false_deaths": deaths,
            "cut_to_ready_seconds": ready_at - cut_at,
        },
    )


def _two_hosts() -> TwoNamespaces:
    missing = what_is_missing()
    if missing:
        raise NotRunHere(missing)
    return TwoNamespaces()


async def delayed_proposer(scene: Scene) -> Outcome:
    """Row 9."""
    with _two_hosts() as hosts:
        verifier = scene.start("verifier", "verifier=tiny", **on(list, NEAR))
        peer = await asyncio.to_thread(lambda: verifier.address)
        proposer = scene.start(
            "proposer", "proposer=tiny-dflash", peers=[peer], **on(hosts.behind, FAR)
        )
        await see_each_other([verifier, proposer])
        await asyncio.to_thread(hosts.become, DELAYED)
        client = await scene.client(verifier)
        await knows_the_way(client, proposer.node_id)
        rates: dict[str, list[float]] = {"off": [], "auto": []}
        streams = []
        # In turn, so that what else the machine does falls on both.
        for _ in range(TURNS):
            for choice in CHOICES:
                async with await opened(client, choice) as session:
                    began = time.monotonic()
                    stream = await streamed(session, TOKENS)
                    rates[choice].append(TOKENS / (time.monotonic() - began))
                    streams.append(stream.token_ids)
        shares = sorted(a / b for a, b in zip(rates["auto"], rates["off"], strict=True))
    share = sum(rates["auto"]) / sum(rates["off"])
    same = all(each == streams[0] for each in streams)
    return Outcome(
        share >= 0.95 and same,
        f"{share:.2f} x the verifier alone over {TURNS} pairs of answers "
        f"({shares[0]:.2f} to {shares[-1]:.2f})",
        {"share": share, "shares": shares, "tokens_per_second": rates, "same_tokens": same},
    )


async def restless(scene: Scene) -> Outcome:
    """Row 10."""
    with _two_hosts() as hosts:
        near = [scene.start("node-0", **on(list, NEAR))]
        peer = await asyncio.to_thread(lambda: near[0].address)
        far = [scene.start(f"node-{n}", peers=[peer], **on(hosts.behind, FAR)) for n in (1, 2)]
        near.append(scene.start("node-3", peers=[peer], **on(list, NEAR)))
        agents = [*near, *far]
        await see_each_other(agents)
        await asyncio.to_thread(hosts.become, RESTLESS)
        # A node that comes back has a card that all others lack.
        near[1].stop()
        again = scene.start("node-3", peers=[peer], **on(list, NEAR))
        await asyncio.to_thread(lambda: again.ready)
        equal = await see_each_other([near[0], again, *far])
        await asyncio.sleep(min(30.0, scene.watched_seconds))
        deaths = sum(len(said(each, "peer_dead")) for each in (near[0], again, *far))
    return Outcome(
        equal < math.inf and deaths == 0,
        f"jitter of {ms(RESTLESS.jitter_seconds)}, reordered, {RESTLESS.repeated:.0%} twice: "
        f"equal roots {equal:.1f} s after a node came back, {deaths} false deaths",
        {"equal_roots_after_seconds": equal, "false_deaths": deaths},
    )


ROWS = (
    Row(
        5,
        "partition 50/50 for 60 s",
        "both sides serve; equal roots <= 30 s after it heals",
        partition,
        360.0,
    ),
    Row(
        6,
        "one-way partition",
        "indirect probes clear it; no false DEAD in 10 min",
        one_way,
        900.0,
    ),
    Row(7, "bridge partition", "gossip flows through the middle", bridge, 240.0),
    Row(8, "30 % loss", "no false DEAD, N = 10, 10 min", loss, 960.0),
    Row(
        9,
        "+200 ms delay to the proposer",
        "throughput >= 0.95x local-only (it is dropped when speculation loses)",
        delayed_proposer,
        300.0,
    ),
    Row(10, "jitter, reorder, duplicate", "equal roots", restless, 240.0),
)

"""Rows 1 to 4, 31 and 32: processes that are killed or frozen."""

from __future__ import annotations

import asyncio
import math
import signal
import time

from kakeya import Liveness
from scripts.faults.row import Outcome, Row
from scripts.faults.scene import Scene, liveness_at, said, see_each_other, until
from scripts.faults.streams import (
    DRAFT_DEADLINE_SECONDS,
    TOKENS,
    Stream,
    alone,
    drafted_by,
    knows_the_way,
    opened,
    streamed,
)
from scripts.support.agent_process import AgentProcess

FROZEN_SECONDS = 10.0


async def _pair(scene: Scene) -> tuple[AgentProcess, AgentProcess]:
    verifier = scene.start("verifier", "verifier=tiny")
    peer = await asyncio.to_thread(lambda: verifier.address)
    proposer = scene.start("proposer", "proposer=ngram", peers=[peer])
    await see_each_other([verifier, proposer])
    return verifier, proposer


async def _with_a_lost_proposer(
    scene: Scene, number: signal.Signals
) -> tuple[AgentProcess, AgentProcess, Stream, Stream]:
    """Verifier, proposer, the stream without drafts, and the one whose proposer was signalled."""
    verifier, proposer = await _pair(scene)
    client = await scene.client(verifier)
    undisturbed = await alone(client)
    await knows_the_way(client, proposer.node_id)
    async with await opened(client, drafted_by(proposer.node_id)) as session:
        stream = await streamed(session, TOKENS, lambda: proposer.signal(number), TOKENS // 4)
    return verifier, proposer, undisturbed, stream


def _stall(undisturbed: Stream, stream: Stream) -> tuple[float, float, dict[str, object]]:
    """The longest stall after the fault, the longest local step, and both for the report."""
    stall, step = stream.longest_gap_after_the_fault, max(undisturbed.gaps)
    return (
        stall,
        step,
        {
            "longest_stall_seconds": stall,
            "longest_local_step_seconds": step,
            "deadline_seconds": DRAFT_DEADLINE_SECONDS,
            "token_count": len(stream.token_ids),
            "differing_token_count": differing(undisturbed.token_ids, stream.token_ids),
        },
    )


def differing(wanted: list[int], found: list[int]) -> int:
    """Places at which two streams are not the same, missing ones included."""
    pairs = sum(a != b for a, b in zip(wanted, found, strict=False))
    return pairs + abs(len(wanted) - len(found))


async def killed_proposer(scene: Scene) -> Outcome:
    """Row 1."""
    _, _, undisturbed, stream = await _with_a_lost_proposer(scene, signal.SIGKILL)
    stall, step, figures = _stall(undisturbed, stream)
    return Outcome(
        stall <= DRAFT_DEADLINE_SECONDS + step and not figures["differing_token_count"],
        f"{figures['differing_token_count']} of {TOKENS} tokens differ; stall {ms(stall)} "
        f"(deadline {ms(DRAFT_DEADLINE_SECONDS)}, longest local step {ms(step)})",
        figures,
    )


async def killed_verifier(scene: Scene) -> Outcome:
    """Row 2."""
    first = scene.start("first", "verifier=tiny")
    peer = await asyncio.to_thread(lambda: first.address)
    second = scene.start("second", "verifier=tiny", peers=[peer])
    await see_each_other([first, second])
    wanted = (await alone(await scene.client(second))).token_ids
    session = await opened(await scene.client(first), resume=True)
    agents = {each.address: each for each in (first, second)}
    serving = agents[session.address]
    # Else it may have sent everything before the fault.
    with serving.slowed():
        stream = await streamed(session, TOKENS, serving.kill, TOKENS // 3)
    await session.close()
    back, wrong = stream.longest_gap_after_the_fault, differing(wanted, stream.token_ids)
    return Outcome(
        back <= 5.0 and not wrong and len(session.resumptions) == 1,
        f"went on elsewhere after {ms(back)}; {wrong} of {TOKENS} tokens lost, doubled or changed",
        {"resumed_after_seconds": back, "differing_token_count": wrong},
    )


async def frozen_proposer(scene: Scene) -> Outcome:
    """Row 3."""
    verifier, proposer, undisturbed, stream = await _with_a_lost_proposer(scene, signal.SIGSTOP)
    client = await scene.client(verifier)
    before = await incarnation(scene, verifier, proposer.node_id)
    await asyncio.sleep(max(0.0, FROZEN_SECONDS - (time.monotonic() - stream.struck_at)))
    proposer.signal(signal.SIGCONT)
    back = await until(lambda: _is(client, proposer.node_id, Liveness.ALIVE))
    await see_each_other([verifier, proposer])
    settled = await incarnation(scene, verifier, proposer.node_id)
    await asyncio.sleep(5.0)
    after = await incarnation(scene, verifier, proposer.node_id)
    stall, _, figures = _stall(undisturbed, stream)
    limit = DRAFT_DEADLINE_SECONDS + 0.02
    return Outcome(
        stall <= limit and not figures["differing_token_count"] and after == settled,
        f"stall {ms(stall)} (deadline + 20 ms: {ms(limit)}); "
        f"{figures['differing_token_count']} of {TOKENS} tokens differ; incarnation rose by "
        f"{settled - before}, and by {after - settled} in the 5 s after",
        figures
        | {
            "alive_again_after_seconds": back,
            "incarnation_rises": settled - before,
            "later_incarnation_rises": after - settled,
        },
    )


async def frozen_until_dead(scene: Scene) -> Outcome:
    """Row 4."""
    agents = await started(scene, 4)
    frozen, others = agents[-1], agents[:-1]
    before = await incarnation(scene, others[0], frozen.node_id)
    frozen.signal(signal.SIGSTOP)
    clients = [await scene.client(each) for each in others]

    async def all_hold_it_for(liveness: Liveness) -> bool:
        return all([await _is(client, frozen.node_id, liveness) for client in clients])

    dead = await until(lambda: all_hold_it_for(Liveness.DEAD))
    frozen.signal(signal.SIGCONT)
    back = await until(lambda: all_hold_it_for(Liveness.ALIVE))
    after = await incarnation(scene, others[0], frozen.node_id)
    rounds = 2 * math.log2(len(agents))
    return Outcome(
        back <= rounds and after > before and dead < math.inf,
        f"dead to all after {dead:.1f} s, alive to all {back:.1f} s after it woke "
        f"({rounds:g} rounds of 1 s), incarnation {before} to {after}",
        {"dead_after_seconds": dead, "back_after_seconds": back, "allowed_seconds": rounds},
    )


async def one_of_two_dies(scene: Scene) -> Outcome:
    """Row 31."""
    survivor = scene.start("survivor", "verifier=tiny")
    peer = await asyncio.to_thread(lambda: survivor.address)
    other = scene.start("other", peers=[peer])
    await see_each_other([survivor, other])
    client = await scene.client(survivor)
    other.kill()
    found = await until(lambda: bool(said(survivor, "peer_dead", other.node_id)))
    stream = await alone(client, 40)
    return Outcome(
        4.0 <= found <= 7.0 and len(stream.token_ids) == 40,
        f"dead after {found:.1f} s; the survivor gave {len(stream.token_ids)} of 40 tokens",
        {"detected_after_seconds": found, "token_count": len(stream.token_ids)},
    )


async def power_cut(scene: Scene) -> Outcome:
    """Row 32."""
    agents = await started(scene, 5)
    for agent in agents:
        agent.kill()
    again = [scene.start(f"node-{number}") for number in range(len(agents))]
    await asyncio.to_thread(lambda: [each.ready for each in again])
    converged = await see_each_other(again)
    return Outcome(
        converged <= 10.0,
        f"{len(again)} nodes, without seed peers: converged {converged:.1f} s after the last boot",
        {"nodes": len(again), "converged_after_seconds": converged},
    )


async def started(scene: Scene, count: int, **options: object) -> list[AgentProcess]:
    """Nodes that know each other; the first one is the seed peer of all others."""
    first = scene.start("node-0", **options)
    peer = await asyncio.to_thread(lambda: first.address)
    others = [scene.start(f"node-{number}", peers=[peer], **options) for number in range(1, count)]
    await see_each_other([first, *others])
    return [first, *others]


async def incarnation(scene: Scene, at: AgentProcess, node_id: str) -> int:
    """Of a node's card, as another has it."""
    client = await scene.client(at)
    nodes = await client.fleet.nodes()
    return next(node.card.incarnation for node in nodes if node.node_id == node_id and node.card)


async def _is(client: object, node_id: str, liveness: Liveness) -> bool:
    return await liveness_at(client, node_id) is liveness  # type: ignore[arg-type]


def ms(seconds: float) -> str:
    """For people."""
    return f"{1000 * seconds:.0f} ms"


ROWS = (
    Row(1, "kill -9 the proposer", "Tok=; stall <= deadline + one local step", killed_proposer),
    Row(
        2,
        "kill -9 the verifier node",
        "the client resumes elsewhere in <= 5 s; no token lost or doubled",
        killed_verifier,
    ),
    Row(
        3,
        "freeze (SIGSTOP) 10 s",
        "stall <= deadline + 20 ms; no incarnation war",
        frozen_proposer,
    ),
    Row(
        4,
        "freeze long enough to be DEAD",
        "rejoins in <= 2 log2 N rounds with a higher incarnation",
        frozen_until_dead,
    ),
    Row(
        31,
        "two-node fleet, one dies",
        "detected in 4-7 s, the survivor serves",
        one_of_two_dies,
    ),
    Row(
        32,
        "power cut of the whole fleet",
        "converged <= 10 s after the last boot",
        power_cut,
    ),
)

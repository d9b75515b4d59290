"""Rows 17, 18, 27 and 28: what is sent to nodes that is too large, broken, forged or old."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any

import grpc.aio
import psutil

from kakeya.v1 import capability_pb2
from scripts.attack.seeds import Strangers
from scripts.faults.lost_processes import incarnation, started
from scripts.faults.row import Outcome, Row
from scripts.faults.scene import Scene, alive_at, looked_at, root_of, said, total, until
from scripts.support.agent_process import AgentProcess

OVERSIZE_BYTES = 70 << 10
"""A card may have 64 KiB."""
OVERSIZE_CARDS, ROUNDS = 300, 4
FUZZED_MESSAGES = 20_000
FLAT_BYTES = 8 << 20
FLOOD_SECONDS = 30.0
FLOOD_PAUSE_SECONDS = 0.02


async def own_card(
    scene: Scene, agent: AgentProcess, about: AgentProcess | None = None
) -> capability_pb2.SignedCard:
    """The signed card of a node, as an agent passes it on."""
    wanted = (about or agent).node_id
    channel = scene.channel(agent.address)
    key = int.from_bytes(bytes.fromhex(wanted)[:8], "big")
    answer = await looked_at(channel, agent.options.fleet_name, wanted_node_keys=[key])
    for signed in answer.cards:
        if capability_pb2.CapabilityCard.FromString(signed.card).node_id == wanted:
            return signed
    raise LookupError(f"{agent.options.name} passes no card of {wanted[:12]} on")


def _strangers(signed: capability_pb2.SignedCard, seed: int) -> Strangers:
    card = capability_pb2.CapabilityCard.FromString(signed.card)
    return Strangers(random.Random(seed), card)


async def oversize(scene: Scene) -> Outcome:
    """Row 17."""
    agent = scene.start("node")
    channel = scene.channel(await asyncio.to_thread(lambda: agent.address))
    signed = await own_card(scene, agent)
    strangers = _strangers(signed, scene.seed)

    def padded(card: object) -> object:
        card.platform = "x" * OVERSIZE_BYTES  # type: ignore[attr-defined]
        return card

    large = strangers.card(padded)  # type: ignore[arg-type]
    while len(large.card) < OVERSIZE_BYTES:
        large = strangers.card(padded)  # type: ignore[arg-type]
    fleet = agent.options.fleet_name
    process, told = psutil.Process(agent.pid), Counter[str]()
    root = await root_of(channel, fleet)
    skipped_before = await total(agent, "kakeya_cards_skipped_total")
    held = [process.memory_info().rss]
    for _ in range(ROUNDS):
        for _ in range(OVERSIZE_CARDS):
            try:
                answer = await looked_at(channel, fleet, cards=[large])
                told.update(each.reason for each in answer.skipped)
            except grpc.aio.AioRpcError as error:
                told[error.code().name] += 1
        held.append(process.memory_info().rss)
    # The first rounds fill what the allocator and gRPC keep for messages of that size.
    rise = held[-1] - held[-2]
    counted = await total(agent, "kakeya_cards_skipped_total") - skipped_before
    same, sent = await root_of(channel, fleet) == root, ROUNDS * OVERSIZE_CARDS
    return Outcome(
        same and rise <= FLAT_BYTES and set(told) == {"OVERSIZE"} and counted == sent,
        f"{sent:,} cards of {OVERSIZE_BYTES >> 10} KiB: {dict(told)}, counted {counted:.0f}; "
        f"memory rose by {(held[1] - held[0]) / 1e6:.1f} MB with the first {OVERSIZE_CARDS}, by "
        f"{rise / 1e6:.1f} MB with the last",
        {
            "answered": dict(told),
            "counted": counted,
            "resident_bytes": held,
            "state_unchanged": same,
        },
    )


async def malformed(scene: Scene) -> Outcome:
    """Row 18."""
    agent = scene.start("node")
    channel = scene.channel(await asyncio.to_thread(lambda: agent.address))
    signed = await own_card(scene, agent)
    fleet = agent.options.fleet_name
    # A batch: two good ones around one that is no card and one that is not signed.
    strangers = _strangers(signed, scene.seed)
    good = [strangers.card(lambda card: card) for _ in range(2)]
    broken = capability_pb2.SignedCard(card=b"\xff\xff", signature=bytes(64))
    unsigned = capability_pb2.SignedCard(card=good[0].card, signature=bytes(64))
    rumour = capability_pb2.Rumour(node_id=agent.node_id, incarnation=1, liveness=99)  # type: ignore[arg-type]
    answer = await looked_at(
        channel, fleet, cards=[good[0], broken, unsigned, good[1]], rumours=[rumour]
    )
    skipped = {each.index: each.reason for each in answer.skipped}
    client = await scene.client(agent)
    known = {node.node_id for node in await client.fleet.nodes()}
    wanted = {capability_pb2.CapabilityCard.FromString(each.card).node_id for each in good}
    raw: Any = channel.unary_unary("/kakeya.v1.CapabilityService/ExchangeCapabilities")
    try:
        await raw(b"\xff" * 40, timeout=10)
        status = "OK"
    except grpc.aio.AioRpcError as error:
        status = error.code().name
    report = scene.folder / "fuzz.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.attack.fuzz", "--messages", str(FUZZED_MESSAGES)),
        *("--seed", str(scene.seed), "--out", str(report)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    code = await process.wait()
    fuzzed = json.loads(report.read_bytes()) if report.exists() else {}
    unhandled = _unhandled(fuzzed)
    used = wanted <= known and 0 not in skipped and 3 not in skipped
    return Outcome(
        used and status == "INVALID_ARGUMENT" and code == 0 and unhandled == 0,
        f"bytes that are no message: {status}; of a batch of 4 cards the 2 good ones were used; "
        f"{FUZZED_MESSAGES:,} fuzzed inputs, {unhandled} unhandled (a million: "
        f"`python -m scripts.attack.fuzz`)",
        {
            "status": status,
            "skipped": skipped,
            "good_cards_used": used,
            "fuzzed_messages": FUZZED_MESSAGES,
            "unhandled": unhandled,
            "log": fuzzed.get("log"),
        },
    )


def _unhandled(fuzzed: dict[str, object]) -> int:
    log = fuzzed.get("log")
    found = 0
    if isinstance(log, dict):
        found += sum(log.get("errors", {}).values()) + sum(log.get("raised", {}).values())
    differing = fuzzed.get("answers_that_differ")
    return found + (len(differing) if isinstance(differing, list) else 1)


async def forged(scene: Scene) -> Outcome:
    """Row 27."""
    first, second = await started(scene, 2)
    channel, fleet = scene.channel(first.address), first.options.fleet_name
    old = await own_card(scene, first, second)
    second.kill()
    again = scene.start("node-1", peers=[first.address])
    await asyncio.to_thread(lambda: again.ready)
    was = capability_pb2.CapabilityCard.FromString(old.card).incarnation
    await until(lambda: _above(scene, first, again.node_id, was))
    new = await own_card(scene, first, again)
    before = await incarnation(scene, first, again.node_id)
    changed = capability_pb2.CapabilityCard.FromString(new.card)
    changed.incarnation, changed.name = changed.incarnation + 1, "mallory"
    higher = capability_pb2.CapabilityCard.FromString(new.card)
    higher.incarnation += 5
    downgraded = capability_pb2.CapabilityCard.FromString(new.card)
    downgraded.protocol_max = 0
    sent = {
        "replayed": old,
        "changed": capability_pb2.SignedCard(
            card=changed.SerializeToString(), signature=old.signature
        ),
        "raised": capability_pb2.SignedCard(
            card=higher.SerializeToString(), signature=new.signature
        ),
        "downgraded": capability_pb2.SignedCard(
            card=downgraded.SerializeToString(), signature=new.signature
        ),
    }
    counted_before = await total(first, "kakeya_cards_skipped_total")
    told: dict[str, str] = {}
    unchanged = True
    for name, card in sent.items():
        answer = await looked_at(channel, fleet, cards=[card])
        told[name] = ", ".join(each.reason for each in answer.skipped) or "dropped as known"
        held = await own_card(scene, first, again)
        unchanged = unchanged and held == new
    charged = await total(first, "kakeya_cards_skipped_total") - counted_before
    after = await incarnation(scene, first, again.node_id)
    return Outcome(
        # What honest nodes send again is no offence: a replay is dropped, and not counted.
        unchanged and charged == len(sent) - 1 and before == after,
        f"{', '.join(f'{name}: {what}' for name, what in told.items())}; the card held is the "
        f"same, {charged:.0f} of {len(sent) - 1} forged ones counted",
        {"told": told, "unchanged": unchanged, "counted": charged},
    )


async def _above(scene: Scene, at: AgentProcess, node_id: str, number: int) -> bool:
    return await incarnation(scene, at, node_id) > number


async def forged_suspicion(scene: Scene) -> Outcome:
    """Row 28."""
    agents = await started(scene, 4)
    victim = agents[-1]
    fleet = victim.options.fleet_name
    channels = [scene.channel(each.address) for each in agents[:-1]]
    began, sent = time.monotonic(), 0
    incarnations = [await incarnation(scene, agents[0], victim.node_id)]
    while time.monotonic() - began < FLOOD_SECONDS:
        now = await incarnation(scene, agents[0], victim.node_id)
        rumours = [
            capability_pb2.Rumour(node_id=victim.node_id, incarnation=each, liveness=liveness)
            for each in (now, now + 1)
            for liveness in (
                capability_pb2.LIVENESS_SUSPECT,
                capability_pb2.LIVENESS_DEAD,
            )
        ]
        for channel in channels:
            await looked_at(channel, fleet, rumours=rumours)
            sent += len(rumours)
        await asyncio.sleep(FLOOD_PAUSE_SECONDS)
    incarnations.append(await incarnation(scene, agents[0], victim.node_id))
    deaths = sum(len(said(each, "peer_dead")) for each in agents)
    clients = [await scene.client(each) for each in agents]

    async def all_alive() -> bool:
        return all([len(await alive_at(each)) == len(agents) for each in clients])

    calm = await until(all_alive)
    return Outcome(
        deaths == 0 and calm < 60.0 and victim.running,
        f"{sent:,} forged rumours in {FLOOD_SECONDS:.0f} s: {deaths} nodes held for dead; "
        f"incarnation {incarnations[0]} to {incarnations[1]}; all alive {calm:.1f} s after",
        {"rumours": sent, "deaths": deaths, "incarnations": incarnations, "calm_after": calm},
    )


ROWS = (
    Row(17, "oversize card", "refused before verification, memory flat", oversize),
    Row(
        18,
        "malformed protobuf, unknown enum",
        "INVALID_ARGUMENT; the rest of the batch is used; a million fuzzed inputs, none unhandled",
        malformed,
        600.0,
    ),
    Row(27, "replayed, forged, downgraded card", "state unchanged, sender charged", forged),
    Row(28, "flood of forged suspicion", "refuted, none DEAD", forged_suspicion, 240.0),
)

"""Rows 22 to 24: proposers that lie or hang, and a ring whose child dies."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import partial

import psutil

from kakeya import AsyncClient, Transport
from scripts.faults.lost_processes import differing, ms
from scripts.faults.lying_agent import HANGING, LIES, TOLD
from scripts.faults.row import NotRunHere, Outcome, Row
from scripts.faults.scene import Scene, samples, until
from scripts.faults.streams import (
    DRAFT_DEADLINE_SECONDS,
    alone,
    drafted_by,
    knows_the_way,
    opened,
    streamed,
)
from scripts.support.agent_process import AgentProcess

TOKENS = 120
FIRST_TOKENS = 16
HARMLESS = {"garbage", "too few", "none", "NaN"}
"""Ids of the vocabulary, fewer of them, none at all: guesses that are refused like any other."""
RING_CHILD = "ring_child"


def lying(lie: str) -> Callable[[Sequence[str]], list[str]]:
    """Has an agent's command start a liar instead."""

    def instead(words: Sequence[str]) -> list[str]:
        return [words[0], "-m", "scripts.faults.lying_agent", lie, *words[3:]]

    return instead


async def liars(scene: Scene) -> Outcome:
    """Row 22."""
    verifier = scene.start("verifier", "verifier=tiny")
    peer = await asyncio.to_thread(lambda: verifier.address)
    agents = {
        lie: scene.start(lie.replace(" ", "-"), "proposer=ngram", peers=[peer], behind=lying(lie))
        for lie in LIES
    }
    client = await scene.client(verifier)
    wanted = (await alone(client, TOKENS)).token_ids
    told: dict[str, dict[str, object]] = {}
    for lie, agent in agents.items():
        node_id = await asyncio.to_thread(_id_of, agent)
        await knows_the_way(client, node_id)
        told[lie] = await _lied_to(client, verifier, node_id, wanted)
    wrong = sum(int(str(each["differing"])) for each in told.values())
    harmful = {lie: each for lie, each in told.items() if lie not in HARMLESS}
    opened_within = max(int(str(each["bad_blocks"])) for each in harmful.values())
    counted = all(each["counted"] for each in harmful.values())
    dropped = all(each["drop_reason"] for each in harmful.values())
    return Outcome(
        wrong == 0 and counted and dropped and opened_within <= 3,
        f"{len(told)} lies: {wrong} tokens differ; those that break the contract were counted "
        f"each, and the breaker opened after {opened_within} bad blocks",
        {"lies": told},
    )


def _id_of(agent: AgentProcess) -> str:
    return agent.node_id


async def _lied_to(
    client: AsyncClient, verifier: AgentProcess, node_id: str, wanted: Sequence[int]
) -> dict[str, object]:
    before = await samples(verifier, "kakeya_draft_faults_total")
    async with await opened(client, drafted_by(node_id)) as session:
        first = await streamed(session, FIRST_TOKENS)
        rest = await streamed(session, TOKENS - FIRST_TOKENS)
    after = await samples(verifier, "kakeya_draft_faults_total")
    if first.done is None:
        raise AssertionError("the generation has no end")
    speculation = first.done.speculation
    return {
        "differing": differing(list(wanted), first.token_ids + rest.token_ids),
        "bad_blocks": sum(fault.count for fault in speculation.faults),
        "drop_reason": speculation.drop_reason.value if speculation.drop_reason else "",
        "counted": sum(after.values()) - sum(before.values()),
    }


async def hanging_proposer(scene: Scene) -> Outcome:
    """Row 23."""
    verifier = scene.start("verifier", "verifier=tiny")
    peer = await asyncio.to_thread(lambda: verifier.address)
    file = scene.folder / "told"
    liar = scene.start(
        "liar",
        "proposer=ngram",
        peers=[peer],
        behind=lying(HANGING),
        environment={TOLD: str(file)},
    )
    client = await scene.client(verifier)
    wanted = (await alone(client, TOKENS)).token_ids
    node_id = await asyncio.to_thread(lambda: liar.node_id)
    await knows_the_way(client, node_id)
    async with await opened(client, drafted_by(node_id)) as session:
        stream = await streamed(session, TOKENS)
    await until(lambda: file.exists() and "cancelled_at" in file.read_text())
    moments = [json.loads(line) for line in file.read_text().splitlines()]
    asked = [each["asked_at"] for each in moments if "asked_at" in each]
    freed = [each["cancelled_at"] for each in moments if "cancelled_at" in each]
    held = [b - a - DRAFT_DEADLINE_SECONDS for a, b in zip(asked, freed, strict=False)]
    wrong = differing(wanted, stream.token_ids)
    return Outcome(
        bool(held) and max(held) <= 1.0 and wrong == 0 and len(freed) == len(asked),
        f"{len(asked)} drafts that hang: each task freed {ms(max(held, default=0.0))} after the "
        f"deadline at most; {wrong} of {TOKENS} tokens differ",
        {"asked": len(asked), "freed": len(freed), "seconds_after_the_deadline": held},
    )


async def ring_child_dies(scene: Scene) -> Outcome:
    """Row 24."""
    if importlib.util.find_spec("mlx") is None:
        raise NotRunHere("MLX is not installed, and with it no ring")
    environment = {"KAKEYA_LINKS": "ring", "KAKEYA_DRAFT_DEADLINE_SECONDS": "2"}
    verifier = scene.start("verifier", "verifier=tiny", environment=environment)
    peer = await asyncio.to_thread(lambda: verifier.address)
    proposer = scene.start(
        "proposer", "proposer=tiny-dflash", peers=[peer], environment=environment
    )
    client = await scene.client(verifier)
    node_id = await asyncio.to_thread(lambda: proposer.node_id)
    await knows_the_way(client, node_id)
    wanted = (await alone(client, 2 * TOKENS)).token_ids
    choice = drafted_by(node_id, "tiny-dflash", 8)
    async with await opened(client, choice) as session:
        first = await streamed(session, TOKENS // 2)
        carried = await until(partial(_carried_by, client, Transport.RING))
        child = _ring_child(proposer)
        if child is None:
            raise NotRunHere("no ring came about between the two agents within 60 s")
        rest = await streamed(session, 2 * TOKENS - TOKENS // 2, child.kill, TOKENS // 4)
    wrong = differing(wanted, first.token_ids + rest.token_ids)
    if rest.done is None:
        raise AssertionError("the generation has no end")
    changes = [
        {"transport": change.transport.value, "reason": change.reason}
        for change in rest.done.link_changes
    ]
    fell = any(change["transport"] == Transport.GRPC.value for change in changes)
    refused = await samples(verifier, "kakeya_tensors_refused_total")
    return Outcome(
        wrong == 0 and fell,
        f"the ring's child killed in mid-stream: {wrong} of {2 * TOKENS} tokens differ; the link "
        f"went {' then '.join(str(change['transport']) for change in changes) or 'nowhere'}",
        {"differing": wrong, "ring_after_seconds": carried, "changes": changes, "refused": refused},
    )


async def _carried_by(client: AsyncClient, transport: Transport) -> bool:
    links = (await client.fleet.node()).tensor_links
    return any(link.is_caller and link.transport is transport for link in links)


def _ring_child(agent: AgentProcess) -> psutil.Process | None:
    for process in psutil.Process(agent.pid).children(recursive=True):
        if any(RING_CHILD in word for word in process.cmdline()):
            return process
    return None


ROWS = (
    Row(
        22,
        "proposer returns garbage, too many, too few, none, out-of-vocabulary or negative ids, "
        "NaN, a stale block",
        "Tok=; counted; the breaker opens within 3 bad blocks",
        liars,
        400.0,
    ),
    Row(
        23,
        "proposer hangs",
        "cancelled; its server task is freed <= 1 s",
        hanging_proposer,
    ),
    Row(
        24,
        "ring peer dies in mid-transfer",
        "no partial tensor used; the link falls to gRPC; Tok=",
        ring_child_dies,
        300.0,
    ),
)

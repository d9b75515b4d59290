"""What once stopped, blinded or filled a node, done again; each against an agent of its own.

    python -m scripts.attack.attacks --out benchmarks/attacks.json

Told of each: whether the agent still runs, its slowest answer to health and GetNode meanwhile,
by how much its memory rose, whether it gives the same answers as before, and what the attacker
was told. Those that need a peer that lies about its own memory, archive or drafts are tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from google.protobuf.message import Message

from kakeya import AsyncClient
from kakeya.v1 import (
    archive_pb2,
    archive_pb2_grpc,
    capability_pb2,
    capability_pb2_grpc,
    proposer_pb2,
    proposer_pb2_grpc,
    tensor_pb2_grpc,
)
from scripts.attack.calls import reason_of
from scripts.attack.seeds import Seeds, Strangers, seeds_for
from scripts.attack.streams import Refused, exchanged
from scripts.attack.subject import MODEL, PROMPT, Subject, attacked
from scripts.bench.machine import command, machine, write_report
from scripts.support.child_process import ChildProcess

SEED = 20_261_123
FEW_FILES = 1024
"""What `ulimit -n` is on many machines."""
CONNECTIONS = 1100
TOLD = 5

Attack = Callable[[Subject, AsyncExitStack], Awaitable[dict[str, object]]]


class Told:
    """How calls ended."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()

    async def of(self, call: Awaitable[object]) -> None:
        """Counts how it ends."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            self.ends[f"{error.code().name} {reason_of(error)}".strip()] += 1
        else:
            self.ends["OK"] += 1

    def most(self) -> dict[str, int]:
        """The most common ends."""
        return dict(self.ends.most_common(TOLD))


def channel_to(address: str, stack: AsyncExitStack) -> grpc.aio.Channel:
    """A connection of its own."""
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", 64 << 20))
    channel = grpc.aio.insecure_channel(address, options=options)
    stack.push_async_callback(channel.close)
    return channel


async def held_open(addresses: Sequence[str], count: int, stack: AsyncExitStack) -> int:
    """Opens so many connections to each and says nothing; how many were taken."""
    taken = 0
    for address in addresses:
        host, _, port = address.rpartition(":")
        for _ in range(count):
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.transport.abort)
                taken += 1
    return taken


async def an_answer(subject: Subject) -> bool:
    """Whether an honest client gets one, from a session that keeps what it evicts elsewhere."""
    async with AsyncClient(subject.address) as client:
        session = await client.create_session(
            MODEL, tokens=PROMPT, kv_strategy="restored", window_tokens=16, speculation="off"
        )
        async with session:
            return len((await session.generate(8).collect()).token_ids) == 8


async def idle_connections(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """1. Idle TCP connections where there are 1,024 files."""
    ports = [subject.address, await subject.archive_address(), subject.http_address]
    taken = await held_open(ports, CONNECTIONS, stack)
    return {"connections": taken, "honest_answer": await an_answer(subject)}


async def long_prompt(subject: Subject, _stack: AsyncExitStack) -> dict[str, object]:
    """2. 7 MB of text to /v1/completions; and 8 MiB of empty lists."""
    url = f"http://{subject.http_address}/v1/completions"
    lists = b'{"model":"tiny","prompt":[' + b"[]," * ((8 << 20) // 3 - 20) + b"1]}"
    told = {}
    async with aiohttp.ClientSession() as session:
        text = "one hostile word after the other. " * (7_000_000 // 34)
        async with session.post(url, json={"model": MODEL, "prompt": text}) as answer:
            told["text"] = f"{answer.status} {(await answer.json())['error']['code']}"
        headers = {"Content-Type": "application/json"}
        async with session.post(url, data=lists, headers=headers) as answer:
            told["lists"] = f"{answer.status} {(await answer.json())['error']['code']}"
    return {"answered": told}


async def draft_streams(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """3. Sixty proposals of as many ids as a message takes."""
    stub = proposer_pb2_grpc.ProposerServiceStub(channel_to(subject.address, stack))
    many = [1] * ((4 << 20) - 4096)

    async def messages() -> AsyncIterator[proposer_pb2.DraftRequest]:
        yield proposer_pb2.DraftRequest(
            open=proposer_pb2.DraftOpen(
                model_id="ngram", prefix_token_ids=PROMPT, vocabulary_size=4096
            )
        )
        length = len(PROMPT)
        for block in range(1, 61):
            length += len(many)
            yield proposer_pb2.DraftRequest(
                proposal=proposer_pb2.DraftProposal(
                    block_id=block, committed_token_ids=many, base_length=length, block_size=4
                )
            )

    told = Told()

    async def drained() -> None:
        async for _ in stub.Draft(messages()):
            pass

    await told.of(drained())
    return {"answered": told.most()}


async def forged_cards(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """4. Cards as large as may be; then Plan and CreateSession of an honest client."""
    channel = channel_to(subject.address, stack)
    told = await exchanged_cards(channel, messages=40, cards=2, padded=True)
    async with AsyncClient(subject.address) as client:
        plan = await client.fleet.plan(MODEL)
        session = await client.create_session(MODEL)
        await session.close()
    return {"answered": told.most(), "rejections_told": len(plan.rejections)}


async def registry_full(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """11. More strangers than the registry takes; then an honest node joins."""
    channel = channel_to(subject.address, stack)
    told = await exchanged_cards(channel, messages=600, cards=20, padded=False)
    newcomer = await asyncio.to_thread(subject.join, "newcomer")
    async with AsyncClient(subject.address) as client:
        nodes = await client.fleet.nodes()
    known = newcomer in {node.node_id for node in nodes}
    return {"answered": told.most(), "nodes": len(nodes), "newcomer_is_known": known}


async def exchanged_cards(
    channel: grpc.aio.Channel, *, messages: int, cards: int, padded: bool
) -> Told:
    """Signed by as many strangers, each with an address of this machine."""
    stub = capability_pb2_grpc.CapabilityServiceStub(channel)
    node = await stub.GetNode(capability_pb2.GetNodeRequest(), timeout=20)
    told, rng = Told(), random.Random(SEED)

    def change(card: Message) -> Message:
        assert isinstance(card, capability_pb2.CapabilityCard)
        if padded:
            card.models.extend(list(card.models) * 9)
        return card

    for number in range(messages):
        strangers = Strangers(random.Random(f"{SEED} {number}"), node.card, cards)
        request = capability_pb2.ExchangeCapabilitiesRequest(
            sender_node_id=node.card.node_id,
            fleet_name=node.card.fleet_name,
            protocol_min=1,
            protocol_max=1,
            root_hash=rng.randbytes(32),
            cards=[strangers.card(change) for _ in range(cards)],
        )
        await told.of(stub.ExchangeCapabilities(request, timeout=20))
    return told


async def idle_streams(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """10. More idle streams than there are places for one caller."""
    told = Told()

    async def watched(stub: capability_pb2_grpc.CapabilityServiceAsyncStub) -> None:
        await anext(aiter(stub.WatchFleet(capability_pb2.WatchFleetRequest())))

    for _ in range(22):
        stub = capability_pb2_grpc.CapabilityServiceStub(channel_to(subject.address, stack))
        await asyncio.gather(*(told.of(watched(stub)) for _ in range(100)))
    return {"answered": told.most(), "used": await subject.used()}


async def silent_connections(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """15. 640 silent connections of HTTP, 64 of the archive's data, 320 links and archives."""
    data = f"127.0.0.1:{await data_port(subject, stack)}"
    taken = await held_open([data], 64, stack) + await held_open([subject.http_address], 640, stack)
    channel = channel_to(subject.address, stack)
    archives = channel_to(await subject.archive_address(), stack)
    links, kept = Told(), Told()
    seeds: Seeds = await seeds_for(channel, random.Random(SEED))
    archive_stub = archive_pb2_grpc.ArchiveServiceStub(archives)

    async def opened() -> None:
        answer = await archive_stub.OpenArchive(seeds.archive())
        closing = archive_pb2.CloseArchiveRequest(archive_id=answer.archive_id)
        stack.push_async_callback(archive_stub.CloseArchive, closing)

    for _ in range(320):
        await links.of(tensor_pb2_grpc.TensorServiceStub(channel).OpenLink(seeds.link()))
        await kept.of(opened())
    children = len(subject.process.children(recursive=True))
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{subject.http_address}/health") as answer,
    ):
        status = answer.status
    return {
        "connections": taken,
        "links": links.most(),
        "archives": kept.most(),
        "child_processes": children,
        "honest_http": status,
    }


async def data_port(subject: Subject, stack: AsyncExitStack) -> int:
    """Where archives take frames."""
    channel = channel_to(await subject.archive_address(), stack)
    seeds = await seeds_for(channel_to(subject.address, stack), random.Random(SEED))
    opened = await archive_pb2_grpc.ArchiveServiceStub(channel).OpenArchive(seeds.archive())
    return int(opened.data_port)


async def malformed(subject: Subject, stack: AsyncExitStack) -> dict[str, object]:
    """17. Bytes that are no request, to ArchiveService and as HTTP; what the log has of it."""
    before = len(subject.agent.log.splitlines())
    told, rng = Told(), random.Random(SEED)
    call: Any = channel_to(await subject.archive_address(), stack).unary_unary(
        "/kakeya.v1.ArchiveService/OpenArchive"
    )
    for _ in range(100):
        await told.of(call(b"\xff" + rng.randbytes(40)))
        with suppress(Refused):
            await exchanged(subject.http_address, rng.randbytes(200), half_closes=True)
    lines = len(subject.agent.log.splitlines()) - before
    return {"answered": told.most(), "log_lines_of_200": lines, "log": subject.log_faults()}


ATTACKS: tuple[Attack, ...] = (
    idle_connections,
    long_prompt,
    draft_streams,
    forged_cards,
    idle_streams,
    registry_full,
    silent_connections,
    malformed,
)


async def measured(attack: Attack, subject: Subject) -> dict[str, object]:
    """What the attack told, and what became of the agent."""
    await subject.differing_answers()
    before = subject.held()
    peak = before.resident_bytes

    async def looks() -> None:
        nonlocal peak
        while True:
            peak = max(peak, subject.held().resident_bytes)
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(looks())
    async with AsyncExitStack() as stack:
        with ChildProcess("scripts.attack.control_probe", [subject.address]) as probe:
            told = await attack(subject, stack)
            probe.end_input()
            answered = json.loads(await asyncio.to_thread(probe.hear))
    looking.cancel()
    return {
        **told,
        "running": subject.agent.running,
        "slowest_answer_ms": max(max(found) for found in answered.values()),
        "stalls": await subject.stalls(),
        "peak_rise_bytes": peak - before.resident_bytes,
        "counted_by_the_agent": await subject.errors_by_reason(),
        "answers_that_differ": await subject.differing_answers(),
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [attack.__name__ for attack in ATTACKS]
    parser.add_argument("--only", choices=names, action="append", help="these alone")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/attacks.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Runs one after the other, writes the report."""
    arguments = parse(words)
    found = {}
    for attack in ATTACKS:
        if arguments.only and attack.__name__ not in arguments.only:
            continue
        files = FEW_FILES if attack is idle_connections else None
        with attacked(attack.__name__.replace("_", "-"), files=files) as subject:
            told = asyncio.run(measured(attack, subject))
        found[attack.__name__] = {"what": attack.__doc__, **told}
        print(attack.__name__, json.dumps(found[attack.__name__]), flush=True)
    write_report(arguments.out, {"command": command(__file__), "machine": machine(), "of": found})


if __name__ == "__main__":
    main()

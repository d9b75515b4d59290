"""A model goes from machine to machine: a source dies in the middle, and the stream is the same."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import pytest

from kakeya import AsyncClient, KakeyaError, PullPhase
from kakeya.v1 import model_service_pb2
from kakeya.v1.model_service_pb2_grpc import ModelServiceStub
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.own_cache import own_cache

WIDE = {"intermediate_size": 1 << 16}
"""Of its two layers 50 MB: seven pieces, which a source is not through with in a moment."""
STANDS_SECONDS = 0.2
"""A piece takes a second then: whoever watches strikes before the last one."""


@pytest.mark.wide
async def test_a_model_is_copied_past_a_source_that_dies_and_its_stream_is_the_same(
    fleet: LocalFleet,
    random_checkpoint: Callable[..., Path],
    tmp_path: Path,
) -> None:
    model = random_checkpoint("Qwen3ForCausalLM", **WIDE)
    name = model.name
    serve = (f"verifier={model}",)
    first = fleet.start("first", serve=serve)
    dying = fleet.start("dying", serve=serve, peers=(first.address,))
    cache = {"XDG_CACHE_HOME": own_cache(tmp_path / "target")}
    peers = (first.address, dying.address)
    target = fleet.start("target", peers=peers, environment=cache)
    async with AsyncClient(target.address) as client:
        for node in (first, dying):
            await asyncio.to_thread(knows, target, node)
            await read_digests(node, name)
        with dying.slowed(STANDS_SECONDS), first.slowed(STANDS_SECONDS) as speed_up:
            pull = client.fleet.pull_model(name, sources=[dying.node_id, first.node_id])
            async for progress in pull:
                came = sum(source.done_bytes for source in progress.sources)
                if progress.phase is PullPhase.COPYING and came and dying.running:
                    dying.kill()
                    speed_up()
        pulled = pull.pulled
    assert pulled is not None
    faults = {source.node_name: source.fault for source in pulled.sources}
    assert faults["dying"]
    assert not faults["first"]
    assert sum(source.done_bytes for source in pulled.sources) == pulled.byte_count

    prompt = tuple(range(90))
    async with AsyncClient(target.address) as client, AsyncClient(first.address) as source:
        loaded = await client.fleet.load_model(name).wait()
        (offer,) = (await source.fleet.node()).card.models
        assert loaded.offer.weights_digest == offer.weights_digest
        assert loaded.offer.tokenizer_digest == offer.tokenizer_digest
        there, here = await asyncio.gather(
            *(generate_with(each, name, prompt) for each in (source, client))
        )
        assert here == there
        (stored,) = await client.fleet.stored_models()
        assert (stored.files_digest, stored.is_served) == (pulled.files_digest, True)


def knows(agent: AgentProcess, other: AgentProcess) -> None:
    """Waits until an agent has met the other."""
    node_id = other.node_id
    agent.wait_for("peer_joined", lambda event: event["node_id"] == node_id)


async def read_digests(agent: AgentProcess, model: str) -> None:
    """Has it read its files, which a copy waits for: what is slowed then is the copy."""
    async with grpc.aio.insecure_channel(agent.address) as channel:
        request = model_service_pb2.GetModelFilesRequest(model_id=model)
        async for _ in ModelServiceStub(channel).GetModelFiles(request):
            pass


async def generate_with(client: AsyncClient, model: str, prompt: tuple[int, ...]) -> list[int]:
    """What the node itself answers, drawn at random from a seed."""
    session = await client.create_session(model, speculation="off")
    async with session:
        await session.append(prompt)
        return list((await session.generate(48, seed=11, temperature=0.8).collect()).token_ids)


async def test_a_pull_that_its_node_did_not_outlive_goes_on_where_it_ended(
    fleet: LocalFleet, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    model = random_checkpoint("Qwen3ForCausalLM", **WIDE)
    source = fleet.start("source", serve=(f"verifier={model}",))
    cache = {"XDG_CACHE_HOME": own_cache(tmp_path / "target")}
    target = fleet.start("target", peers=(source.address,), environment=cache)
    await asyncio.to_thread(knows, target, source)
    came = 0
    async with AsyncClient(target.address) as client:
        await read_digests(source, model.name)
        with source.slowed(STANDS_SECONDS):
            pull = client.fleet.pull_model(model.name, sources=[source.node_id])
            with pytest.raises(KakeyaError):
                async for progress in pull:
                    came = sum(each.done_bytes for each in progress.sources)
                    if came and target.running:
                        target.kill()
    target = fleet.start("target", peers=(source.address,), environment=cache)
    async with AsyncClient(target.address) as client:
        (part,) = await client.fleet.stored_models()
        assert (part.is_whole, part.byte_count >= came > 0) == (False, True)
        await asyncio.to_thread(knows, target, source)
        pulled = await client.fleet.pull_model(model.name, sources=[source.node_id]).wait()
        assert pulled.sources[0].done_bytes <= pulled.byte_count - came
        (whole,) = await client.fleet.stored_models()
        assert whole.is_whole

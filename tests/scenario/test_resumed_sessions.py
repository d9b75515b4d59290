"""A session outlives its verifiers, and its tokens are those of an undisturbed run."""

from pathlib import Path
from typing import Unpack

import pytest

from kakeya import AsyncClient, AsyncSession, Resumption, StopReason, Timeouts, TransportError
from kakeya.options import GenerateOptions, SessionOptions
from kakeya.text import TextCodec
from scripts.support.agent_process import AgentProcess, LocalFleet

TINY = Path(__file__).parents[2] / "engine" / "shipped" / "tiny"
TOKENS = 240
"""The first are there well before the rest, however late a client reads: a verifier that is slowed
says all of them in some twenty seconds."""
STANDS_SECONDS = 0.2
KV: SessionOptions = {"sink_tokens": 4, "window_tokens": 16, "speculation": "off"}
RESUMED: SessionOptions = {**KV, "resume": True}
SAMPLED: GenerateOptions = {
    "seed": 7,
    "temperature": 0.9,
    "top_k": 40,
    "top_log_probabilities": 1,
    # What the lost node said is part of the next choices.
    "regex": r"([a-z_]{1,12} [0-9]{1,3}\n)*",
    "frequency_penalty": 0.4,
    "presence_penalty": 0.1,
}


async def undisturbed(client: AsyncClient, prompt: tuple[int, ...]) -> tuple[int, ...]:
    async with await client.create_session("tiny", **KV) as session:
        await session.append(prompt)
        await session.generate(TOKENS).collect()
        await session.generate(TOKENS, **SAMPLED).collect()
        return session.history


async def generate_while_killing(
    session: AsyncSession, agents: dict[str, AgentProcess], **sampling: Unpack[GenerateOptions]
) -> None:
    """Generates; kills the serving agent without a word once the first tokens have come."""
    serving = agents[session.address]
    generation = session.generate(TOKENS, **sampling)
    log_probability_count = 0
    with serving.slowed(STANDS_SECONDS):
        async for tokens in generation:
            log_probability_count += len(tokens.log_probabilities)
            if serving.running:
                serving.kill()
    assert generation.done is not None
    assert generation.done.stop_reason is StopReason.MAX_TOKENS
    assert generation.done.generated_token_count == TOKENS
    assert log_probability_count == (TOKENS if sampling else 0)


async def test_two_verifiers_die_and_the_stream_is_the_same(
    fleet: LocalFleet, prompt: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fleet.start("first", serve=("verifier=tiny",))
    others = [
        fleet.start(name, serve=("verifier=tiny",), peers=(first.address,))
        for name in ("second", "third")
    ]
    for agent in others:
        agent.wait_for("peer_joined", seconds=60.0)
    agents = {agent.address: agent for agent in (first, *others)}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    async with AsyncClient(first.address) as client, AsyncClient(others[1].address) as calm:
        whole = await undisturbed(calm, prompt)
        codec = await client.text("tiny")
        assert codec.encode("def f():") == TextCodec.from_folder(TINY).encode("def f():")
        assert codec.has_chat_template

        session = await client.create_session("tiny", **RESUMED)
        await session.append(prompt)
        await generate_while_killing(session, agents)
        # The node that was asked first is gone, and with it the client's only way in.
        await generate_while_killing(session, agents, **SAMPLED)
        assert session.history == whole
        lines = codec.decode(whole[-TOKENS:]).splitlines()[:-1]
        assert all(line.replace("_", "a").replace(" ", "").isalnum() for line in lines)
        assert [agent.running for agent in agents.values()].count(True) == 1
        check_told(session.resumptions, first.address, session.address, len(prompt))
        assert (await session.info()).history_length == len(whole)
        await session.close()


@pytest.mark.wide
async def test_the_only_verifier_is_started_anew_and_the_stream_is_the_same(
    fleet: LocalFleet, prompt: tuple[int, ...]
) -> None:
    alone = fleet.start("alone", serve=("verifier=tiny",))
    async with AsyncClient(alone.address, timeouts=Timeouts(resume=0)) as client:
        async with await client.create_session("tiny", **KV) as calm:
            await calm.append(prompt)
            expected = (await calm.generate(TOKENS).collect()).token_ids
        session = await client.create_session("tiny", **RESUMED)
        await session.append(prompt)
        with pytest.raises(TransportError) as caught:
            await generate_while_killing(session, {alone.address: alone})
        assert caught.value.metadata["resumption_reason"] == "NO_PLACEMENT"
        received = session.history_length - len(prompt)
        assert 0 < received < TOKENS
        again = fleet.start("alone", serve=("verifier=tiny",), bind=alone.address)
        assert again.address == alone.address
        await session.generate(TOKENS - received).collect()
        assert session.history == prompt + expected
        (resumption,) = session.resumptions
        assert resumption.reason == "SESSION_NOT_FOUND"
        assert resumption.from_address == resumption.to_address == alone.address
        await session.close()


def check_told(
    resumptions: tuple[Resumption, ...], first: str, last: str, prompt_length: int
) -> None:
    one, two = resumptions
    assert (one.from_address, one.to_address, two.to_address) == (first, two.from_address, last)
    assert prompt_length < one.history_length < prompt_length + TOKENS
    assert one.history_length < two.history_length
    assert {one.reason, two.reason} <= {"NODE_UNREACHABLE", "CANCELLED", "UNEXPECTED_ERROR"}
    assert min(one.seconds, two.seconds) > 0

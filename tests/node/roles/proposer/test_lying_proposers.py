"""A proposer over the real wire costs speed at most, whatever it does."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.speculation import pace
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role, StepCost
from kakeya_fleet.fleet.cards.liveness import Liveness
from tests.support import calls, liars
from tests.support.breadth import wide
from tests.support.neighbourhood import SETTINGS, Neighbourhood, Node

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 5 % 96 for index in range(50)]
TOKENS = 80
GREEDY: dict[str, float] = {}
SEEDED = {"temperature": 0.9, "seed": 21}

LIES = {
    "garbage": None,
    "silent": None,
    "nan_seconds": None,
    "too_many": runtime_pb2.DROP_REASON_WRONG_LENGTH,
    "out_of_vocabulary": runtime_pb2.DROP_REASON_OUT_OF_VOCABULARY,
    "stale": runtime_pb2.DROP_REASON_STALE,
    "doubled": runtime_pb2.DROP_REASON_STALE,
    "statusless": runtime_pb2.DROP_REASON_STALE,
    "hanging": runtime_pb2.DROP_REASON_DEADLINE,
    "dying": runtime_pb2.DROP_REASON_UNREACHABLE,
}


Expected = Callable[..., Awaitable[list[int]]]


@pytest.fixture(scope="module")
def said_alone() -> dict[str, list[int]]:
    """The streams with speculation off, by sampling."""
    return {}


@pytest.fixture
def expected(client: calls.Caller, said_alone: dict[str, list[int]]) -> Expected:
    """The stream with speculation off, greedy and seeded, generated once in the module."""

    async def alone(**sampling: float) -> list[int]:
        key = repr(sampling)
        if key not in said_alone:
            session = await client.open()
            await client.append(session, PROMPT)
            said_alone[key] = (await client.generate(session, TOKENS, **sampling)).token_ids
            await client.close(session)
        return said_alone[key]

    return alone


@pytest.fixture
def impatient(
    neighbourhood: Neighbourhood, checkpoint: Path
) -> Callable[[], Awaitable[calls.Caller]]:
    """Starts a verifier of the same model that waits for no draft for long."""

    async def start() -> calls.Caller:
        settings = replace(SETTINGS, draft_deadline_seconds=0.2)
        node = await neighbourhood.start("impatient", f"verifier={checkpoint}", settings=settings)
        return calls.Caller(node.channel)

    return start


async def paired(
    client: calls.Caller,
    neighbourhood: Neighbourhood,
    servicer: liars.Liar,
    name: str,
    block_size: int = 8,
) -> str:
    """A session that is fixed to a liar."""
    await neighbourhood.start_liar(name, servicer)
    session = await client.open(
        mode=runtime_pb2.SPECULATION_MODE_FIXED,
        proposer="liar",
        proposer_node=name,
        block_size=block_size,
    )
    await client.append(session, PROMPT)
    return session


@pytest.mark.parametrize(
    ("lie", "sampling"), [(lie, (GREEDY, SEEDED)[at % 2]) for at, lie in enumerate(LIES)]
)
async def test_the_stream_is_the_verifiers_own(
    client: calls.Caller,
    neighbourhood: Neighbourhood,
    expected: Expected,
    impatient: Callable[[], Awaitable[calls.Caller]],
    lie: str,
    sampling: dict[str, float],
) -> None:
    wanted = await expected(**sampling)
    if lie == "hanging":
        client = await impatient()
    servicer = getattr(liars, lie)()
    session = await paired(client, neighbourhood, servicer, lie)
    stream = await client.generate(session, TOKENS, **sampling)

    assert stream.token_ids == wanted
    assert servicer.answered or lie == "hanging", "the liar was never asked"
    faults = {fault.reason: fault.count for fault in stream.done.speculation.faults}
    reason = LIES[lie]
    if reason is None:
        assert faults == {}
        assert stream.done.speculation.drop_reason == runtime_pb2.DROP_REASON_UNSPECIFIED
    else:
        assert faults.keys() == {reason}
        assert 1 <= faults[reason] <= 3 + TOKENS // 8, "the breaker never opened"
        assert stream.done.speculation.drop_reason == reason
        assert (await client.info(session)).drop_reason == reason


def shut_out_nodes(verifier: Node) -> set[str]:
    return {node_id for node_id, _ in verifier.roles.verifier.open_breakers()}


async def test_three_bad_blocks_open_the_breaker_and_the_planner_says_so(
    client: calls.Caller, neighbourhood: Neighbourhood, verifier: Node
) -> None:
    servicer = liars.too_many()
    session = await paired(client, neighbourhood, servicer, "three")
    await client.generate(session, 12)
    assert servicer.answered == 3
    assert "three" in shut_out_nodes(verifier)

    request = runtime_pb2.CreateSessionRequest(
        model_id="random",
        speculation=runtime_pb2.Speculation(
            mode=runtime_pb2.SPECULATION_MODE_FIXED,
            proposer_model_id="liar",
            proposer_node_id="three",
        ),
    )
    refusal = await client.refusal("CreateSession", request)
    assert refusal.reason == "NO_PLACEMENT"
    assert "breaker_open" in refusal.metadata["reasons"]


@pytest.mark.parametrize(
    ("block_size", "sampling"), [wide(1, SEEDED), (4, GREEDY), (15, SEEDED)], ids=str
)
async def test_a_perfect_and_a_half_right_proposer_speed_up_the_same_stream(
    client: calls.Caller,
    neighbourhood: Neighbourhood,
    expected: Expected,
    block_size: int,
    sampling: dict[str, float],
) -> None:
    wanted = await expected(**sampling)
    text = [*PROMPT, *wanted, *wanted]
    forwards = []
    for kind, miss in (("perfect", lambda _p: False), ("half", lambda p: p % 3 == 0)):
        servicer = liars.knowing(text, miss)
        name = f"{kind}-{block_size}"
        session = await paired(client, neighbourhood, servicer, name, block_size)
        stream = await client.generate(session, TOKENS, **sampling)
        assert stream.token_ids == wanted
        assert stream.done.speculation.faults == []
        forwards.append(stream.done.speculation.verify_forward_count)
        # Deltas only: the prefix once, and each committed token at most once.
        assert servicer.streams == 1
        assert servicer.sent_token_count <= len(PROMPT) + TOKENS
    # One forward commits a whole block and the bonus token.
    assert forwards[0] <= TOKENS // (block_size + 1) + 2
    assert forwards[0] < forwards[1] < TOKENS or block_size == 1


async def test_one_stream_serves_several_generations_and_done_tells_of_it(
    client: calls.Caller, neighbourhood: Neighbourhood, expected: Expected
) -> None:
    wanted = await expected()
    servicer = liars.knowing([*PROMPT, *wanted])
    session = await paired(client, neighbourhood, servicer, "lasting")
    tokens: list[int] = []
    for _ in range(4):
        stream = await client.generate(session, TOKENS // 4)
        tokens += stream.token_ids
        statistics = stream.done.speculation
        assert (statistics.proposer_node_id, statistics.proposer_model_id) == ("lasting", "liar")
        assert 0.0 < statistics.round_trip_seconds_p50 <= statistics.round_trip_seconds_p99
        assert stream.drafted_count == statistics.accepted_count
        assert len(stream.done.timeline) == statistics.verify_forward_count
        assert all(block.verify_seconds > 0.0 for block in stream.done.timeline)
    assert tokens == wanted
    assert servicer.streams == 1
    assert servicer.sent_token_count < len(PROMPT) + TOKENS


async def test_a_proposer_that_comes_back_is_used_again_by_the_same_session(
    client: calls.Caller, neighbourhood: Neighbourhood, expected: Expected, verifier: Node
) -> None:
    wanted = await expected()
    first = liars.knowing([*PROMPT, *wanted])
    server = await neighbourhood.start_liar("phoenix", first)
    port = neighbourhood.directory.views["phoenix"].card.addresses[0].rsplit(":", 1)[1]
    session = await client.open(
        mode=runtime_pb2.SPECULATION_MODE_FIXED,
        proposer="liar",
        proposer_node="phoenix",
        block_size=8,
    )
    await client.append(session, PROMPT)
    tokens = (await client.generate(session, 30)).token_ids
    await server.stop(0)
    alone = await client.generate(session, 20)
    tokens += alone.token_ids
    assert alone.done.speculation.drop_reason == runtime_pb2.DROP_REASON_UNREACHABLE

    second = liars.knowing([*PROMPT, *wanted])
    await neighbourhood.start_liar("phoenix", second, port=int(port))
    while len(tokens) < TOKENS and not second.answered:
        # Its address may be tried too early, which opens the breaker anew.
        await calls.until(lambda: "phoenix" not in shut_out_nodes(verifier))
        tokens += (await client.generate(session, 2)).token_ids
    if len(tokens) < TOKENS:
        tokens += (await client.generate(session, TOKENS - len(tokens))).token_ids
    assert second.answered > 0, "the proposer that came back was never asked"
    assert second.streams == 1
    assert tokens == wanted


async def test_auto_takes_another_proposer_when_its_own_died(
    client: calls.Caller,
    neighbourhood: Neighbourhood,
    expected: Expected,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Which is faster on a busy machine, drafting or decoding alone, is not tried here.
    monkeypatch.setattr(pace, "LOST_TOKENS", math.inf)
    measured = neighbourhood.directory.views["verifier"]
    neighbourhood.directory.say_steps("verifier", StepCost(1, 0.01), StepCost(16, 0.012))
    wanted = await expected()
    quick = ModelOffer(
        model_id="quick",
        role=Role.PROPOSER,
        kind=ModelKind.NGRAM,
        step_costs=(StepCost(1, 1e-6), StepCost(15, 1e-6)),
    )
    for node_id in neighbourhood.directory.views.keys() - {"verifier"}:
        neighbourhood.directory.set_liveness(node_id, Liveness.DEAD)
    one, two = (liars.knowing([*PROMPT, *wanted]) for _ in range(2))
    servers = {
        "auto-1": await neighbourhood.start_liar("auto-1", one, offer=quick),
        "auto-2": await neighbourhood.start_liar("auto-2", two, offer=quick),
    }
    session = await client.open(mode=runtime_pb2.SPECULATION_MODE_AUTO)
    await client.append(session, PROMPT)
    chosen = (await client.info(session)).plan.proposer.node_id
    assert chosen in servers, (await client.info(session)).plan
    tokens = (await client.generate(session, 30)).token_ids
    await servers[chosen].stop(0)
    tokens += (await client.generate(session, 20)).token_ids
    tokens += (await client.generate(session, 30)).token_ids
    info = await client.info(session)
    assert info.plan.proposer.node_id in servers.keys() - {chosen}
    assert info.drop_reason == runtime_pb2.DROP_REASON_UNSPECIFIED
    assert tokens == wanted
    neighbourhood.directory.views["verifier"] = measured


async def test_sessions_that_choose_tell_each_other_what_trials_came_to(
    client: calls.Caller, neighbourhood: Neighbourhood, verifier: Node
) -> None:
    """By kind of text; one that names its proposer tries nobody, and tells nothing."""
    books = verifier.roles.verifier._lifecycle._context.trial_books._books
    books.clear()
    fixed = await paired(client, neighbourhood, liars.knowing(PROMPT), "named")
    await client.generate(fixed, 4)
    assert not books
    session = await client.open(mode=runtime_pb2.SPECULATION_MODE_AUTO)
    await client.append(session, PROMPT)
    await client.generate(session, 4)
    await client.generate(session, 4, **SEEDED)
    assert {sampled for _, sampled, _ in books} == {False, True}
    assert [book._sessions for book in books.values()] == [1.0, 1.0]
    assert all(book._tokens > 0 for book in books.values())


async def test_a_session_whose_fixed_proposer_fails_can_be_forked(
    client: calls.Caller, neighbourhood: Neighbourhood, expected: Expected, verifier: Node
) -> None:
    wanted = await expected()
    session = await paired(client, neighbourhood, liars.too_many(), "failing")
    await client.generate(session, 12)
    assert "failing" in shut_out_nodes(verifier)
    fork = await client.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=session), timeout=10
    )
    rest = await client.generate(fork.session_id, TOKENS - 12)
    assert rest.token_ids == wanted[12:]
    assert (await client.info(fork.session_id)).plan.proposer.node_id == "failing"

"""A plain model drafts for a verifier, here and elsewhere: past the window, the same stream."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.backends import installed_backends
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.proposers.autoregressive import AutoregressiveProposer
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.speculation.place_rates import PlaceRates
from kakeya_fleet.fleet.cards.card import ModelKind, StepCost
from kakeya_fleet.fleet.placement.acceptance_prior import SAME_WEIGHTS_ACCEPTANCE
from kakeya_fleet.node.roles.proposer import proposer_loading
from kakeya_fleet.node.roles.proposer.served_proposer import JUDGED_STEPS
from tests.support import calls
from tests.support import checkpoint as random_model
from tests.support import neighbourhood as nodes
from tests.support.breadth import wide
from tests.support.patience import PATIENCE_SECONDS
from tests.support.replacing import replace_method

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 5 % 96 for index in range(50)]
LONG_PROMPT = [(index * 7 + index * index) % 96 for index in range(600)]
TOKENS = 40
SHORT_CONTEXT = 1024
IN_COMPANY = 20
"""Tokens of each of many: past the window as well."""
BLOCK = 6
COSTS = (StepCost(1, 1e-3), StepCost(BLOCK, 6e-3))
ON_TORCH = pytest.mark.parametrize("drafting", ["torch", wide("mlx")], indirect=True)
"""What it is about is the same on both back ends, or is held of both by `tests/contract`."""


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["torch", "mlx"])
async def drafting(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[nodes.Node, nodes.Node]]:
    """A verifier that drafts for itself too, and a node that drafts with its model's weights."""
    backend = str(request.param)
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    settings = replace(nodes.SETTINGS, backend=backend)
    async with nodes.Neighbourhood() as around:
        with pytest.MonkeyPatch.context() as patched:
            if backend == "mlx":
                # Whose check at load takes a quarter with a quarter of the positions,
                checkpoint = random_model.make(tmp_path_factory.mktemp("short"), SHORT_CONTEXT)
                # and whose drafts take seconds to measure: no session here goes by their costs.
                patched.setattr(proposer_loading, "measure_drafts", lambda *_: COSTS)
            drafter = await around.start("drafter", f"proposer={checkpoint}", settings=settings)
            verifier = await around.start(
                "verifier", f"verifier={checkpoint}", f"proposer={checkpoint}", settings=settings
            )
        yield verifier, drafter


def pool_bytes(node: nodes.Node) -> int:
    (served,) = node.roles.proposer.by_model.values()
    assert isinstance(served.proposer, AutoregressiveProposer)
    return served.proposer.held_bytes


async def stream(
    node: nodes.Node, prompt: list[int], proposer_node: str = "", count: int = TOKENS
) -> tuple[calls.Stream, str]:
    """What a session says, with drafts of a node's only model where one is named; its id."""
    caller = calls.Caller(node.channel)
    (model_id,) = node.roles.verifiers
    mode = calls.FIXED if proposer_node else calls.OFF
    session = await caller.open(
        model_id=model_id,
        mode=mode,
        proposer=model_id if proposer_node else "",
        proposer_node=proposer_node,
        block_size=BLOCK if proposer_node else 0,
    )
    await caller.append(session, prompt)
    return await caller.generate(session, count), session


@pytest.mark.parametrize("proposer_node", ["drafter", wide("verifier")])
async def test_the_stream_is_the_verifiers_and_most_drafts_are_taken(
    drafting: tuple[nodes.Node, nodes.Node], proposer_node: str
) -> None:
    verifier, drafter = drafting
    alone, _ = await stream(verifier, PROMPT)
    paired, session = await stream(verifier, PROMPT, proposer_node)
    assert paired.token_ids == alone.token_ids
    told = paired.done.speculation
    assert told.drafted_count > TOKENS // 2
    # The verifier sees a window of what the drafter sees all of.
    assert told.accepted_count > 0
    assert not told.faults
    drafts_at = drafter if proposer_node == "drafter" else verifier
    (offer,) = drafts_at.roles.proposer.offers
    assert (offer.kind, offer.feature_width) == (ModelKind.AUTOREGRESSIVE, 0)
    assert pool_bytes(drafts_at) > 0
    await calls.Caller(verifier.channel).close(session)
    await calls.until(lambda: pool_bytes(drafts_at) == 0)


@pytest.mark.parametrize("proposer_node", [wide("drafter"), "verifier"])
async def test_drafts_of_the_same_weights_are_taken_at_a_temperature_too(
    drafting: tuple[nodes.Node, nodes.Node], proposer_node: str
) -> None:
    """The likeliest token is seldom what a random model's verifier draws of 96."""
    verifier, _ = drafting
    caller = calls.Caller(verifier.channel)
    (model_id,) = verifier.roles.verifiers
    hot = {"temperature": 1.0, "seed": 7, "top_k": 60}
    said = []
    for named in ("", proposer_node):
        session = await caller.open(
            model_id=model_id,
            window=512,
            mode=calls.FIXED if named else calls.OFF,
            proposer=model_id if named else "",
            proposer_node=named,
            block_size=BLOCK if named else 0,
        )
        await caller.append(session, PROMPT)
        said.append(await caller.generate(session, TOKENS, **hot))
        await caller.close(session)
    alone, paired = said
    assert paired.token_ids == alone.token_ids
    told = paired.done.speculation
    assert told.drafted_count > TOKENS // 2
    # All but quotes, of which random text has few.
    assert told.accepted_count > 0.8 * told.drafted_count


class Reading:
    """How many tokens a drafter's own forwards take in, and of how many they only read."""

    def __init__(self, node: nodes.Node) -> None:
        (served,) = node.roles.proposer.by_model.values()
        assert isinstance(served.proposer, AutoregressiveProposer)
        self._verifier = served.proposer._verifier
        self._honest = self._verifier.forward_batch
        self.token_count = 0
        self.read_count = 0

    def __enter__(self) -> Reading:
        replace_method(self._verifier, "forward_batch", self._counted)
        return self

    def __exit__(self, *_error: object) -> None:
        replace_method(self._verifier, "forward_batch", self._honest)

    def _counted(self, feeds: Sequence[Feed]) -> list[Output]:
        self.token_count += sum(len(feed.token_ids) for feed in feeds)
        self.read_count += sum(len(feed.token_ids) for feed in feeds if not feed.want_logits)
        return self._honest(feeds)


@pytest.mark.parametrize("proposer_node", ["drafter", "verifier"])
async def test_a_drafter_of_this_machine_reads_nothing_that_its_verifier_has_read(
    drafting: tuple[nodes.Node, nodes.Node], proposer_node: str
) -> None:
    """Nor a second turn's prompt, nor what was said before its stream rested; the same stream."""
    verifier, drafter = drafting
    caller = calls.Caller(verifier.channel)
    (model_id,) = verifier.roles.verifiers
    said = []
    with Reading(drafter if proposer_node == "drafter" else verifier) as reading:
        for named in ("", proposer_node):
            session = await caller.open(
                model_id=model_id,
                window=512,
                mode=calls.FIXED if named else calls.OFF,
                proposer=model_id if named else "",
                proposer_node=named,
                block_size=BLOCK if named else 0,
            )
            for turn in (LONG_PROMPT[:150], PROMPT):
                await caller.append(session, turn)
                said.append(await caller.generate(session, TOKENS))
                if named:
                    verifier.roles.sessions.opened(session).pairing.rest()
            await caller.close(session)
    assert [each.token_ids for each in said[2:]] == [each.token_ids for each in said[:2]]
    told = [each.done.speculation for each in said[2:]]
    assert sum(each.drafted_count for each in told) > TOKENS
    assert not any(each.faults for each in told)
    # It computes its drafts, however many of them are in vain.
    assert reading.read_count < TOKENS


@pytest.mark.parametrize("proposer_node", ["drafter", "verifier"])
@ON_TORCH
async def test_the_stream_of_one_that_was_given_its_prompt_goes_on_past_the_window(
    drafting: tuple[nodes.Node, nodes.Node], proposer_node: str
) -> None:
    verifier, drafter = drafting
    caller = calls.Caller(verifier.channel)
    (model_id,) = verifier.roles.verifiers
    said = []
    with Reading(drafter if proposer_node == "drafter" else verifier) as reading:
        for named in ("", proposer_node):
            session = await caller.open(
                model_id=model_id,
                window=len(PROMPT) + 10,
                mode=calls.FIXED if named else calls.OFF,
                proposer=model_id if named else "",
                proposer_node=named,
                block_size=BLOCK if named else 0,
            )
            await caller.append(session, PROMPT)
            said.append(await caller.generate(session, 3 * len(PROMPT)))
            await caller.close(session)
    assert said[1].token_ids == said[0].token_ids
    assert said[1].done.speculation.drafted_count > 0
    assert reading.token_count > 0


@ON_TORCH
async def test_a_window_that_has_left_the_prompt_behind_has_the_drafter_read(
    drafting: tuple[nodes.Node, nodes.Node],
) -> None:
    verifier, drafter = drafting
    with Reading(drafter) as reading:
        paired, session = await stream(verifier, LONG_PROMPT[:60], "drafter")
    assert paired.done.speculation.drafted_count > 0
    assert reading.token_count >= 59
    await calls.Caller(verifier.channel).close(session)


@ON_TORCH
async def test_a_first_session_begins_with_what_is_assumed_of_the_same_weights(
    drafting: tuple[nodes.Node, nodes.Node],
) -> None:
    verifier, _ = drafting
    (model_id,) = verifier.roles.verifiers
    verifier.roles.verifier._lifecycle._context.rates._found.clear()
    session = await calls.Caller(verifier.channel).open(
        model_id=model_id, mode=calls.FIXED, proposer=model_id, proposer_node="drafter"
    )
    roster = await verifier.roles.sessions.opened(session).pairing.connect(History())
    assert roster is not None
    assert roster.rivals[0].state.pace.places == PlaceRates.assuming(SAME_WEIGHTS_ACCEPTANCE.rate)


@pytest.mark.parametrize("proposer_node", ["drafter", "verifier"])
@ON_TORCH
async def test_a_long_prompt_is_read_beside_the_stream(
    drafting: tuple[nodes.Node, nodes.Node], proposer_node: str
) -> None:
    """No block waits for it, and it is no fault: then it drafts."""
    verifier, drafter = drafting
    alone, _ = await stream(verifier, LONG_PROMPT)
    paired, session = await stream(verifier, LONG_PROMPT, proposer_node)
    assert paired.token_ids == alone.token_ids
    assert not paired.done.speculation.faults
    caller = calls.Caller(verifier.channel)
    drafted = paired.done.speculation.drafted_count
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not drafted:
            drafted = (await caller.generate(session, 8)).done.speculation.drafted_count
    await caller.close(session)
    drafts_at = drafter if proposer_node == "drafter" else verifier
    await calls.until(lambda: pool_bytes(drafts_at) == 0)


@ON_TORCH
async def test_no_draft_is_made_on_the_event_loop_however_quick_its_quotes_were(
    drafting: tuple[nodes.Node, nodes.Node],
) -> None:
    """It would hear of nothing meanwhile, not even that nobody wants the draft."""
    _, drafter = drafting
    (served,) = drafter.roles.proposer.by_model.values()
    threads = [await served.runner(1)(threading.current_thread) for _ in range(JUDGED_STEPS + 1)]
    assert threading.main_thread() not in threads


@ON_TORCH
async def test_eight_sessions_at_once_and_their_forks_say_what_each_says_alone(
    drafting: tuple[nodes.Node, nodes.Node],
) -> None:
    verifier, drafter = drafting
    prompts = [[(token + 3 * number) % 96 for token in PROMPT] for number in range(8)]
    alone = [
        each.token_ids
        for each, _ in await asyncio.gather(
            *(stream(verifier, prompt, count=IN_COMPANY) for prompt in prompts)
        )
    ]
    paired = await asyncio.gather(
        *(stream(verifier, prompt, "drafter", IN_COMPANY) for prompt in prompts)
    )
    assert [each.token_ids for each, _ in paired] == alone
    caller = calls.Caller(verifier.channel)
    forks = [
        (
            await caller.stub.ForkSession(
                runtime_pb2.ForkSessionRequest(session_id=session, history_length=len(PROMPT))
            )
        ).session_id
        for _, session in paired[:2]
    ]
    again = await asyncio.gather(*(caller.generate(fork, IN_COMPANY) for fork in forks))
    assert [each.token_ids for each in again] == alone[:2]
    assert sum(each.done.speculation.drafted_count for each in again) > 0
    for session in (*forks, *(session for _, session in paired)):
        await caller.close(session)
    await calls.until(lambda: pool_bytes(drafter) == 0)


async def test_one_without_memory_costs_speed_alone(checkpoint: Path) -> None:
    """Its node has room for the keys of a few: the other ones go on alone."""
    async with nodes.Neighbourhood() as around:
        small = replace(nodes.SETTINGS, kv_budget_bytes=1 << 20)
        await around.start("drafter", f"proposer={checkpoint}", settings=small)
        verifier = await around.start("verifier", f"verifier={checkpoint}")
        prompt = LONG_PROMPT[:280]
        alone, _ = await stream(verifier, prompt)
        paired = await asyncio.gather(*(stream(verifier, prompt, "drafter") for _ in range(8)))
        assert {tuple(each.token_ids) for each, _ in paired} == {tuple(alone.token_ids)}
        reasons = {fault.reason for each, _ in paired for fault in each.done.speculation.faults}
        assert reasons == {runtime_pb2.DROP_REASON_UNREACHABLE}


async def test_one_whose_node_has_no_memory_for_it_is_not_served(checkpoint: Path) -> None:
    async with nodes.Neighbourhood() as around:
        none = replace(nodes.SETTINGS, kv_budget_bytes=1)
        with pytest.raises(ModelUnusable, match="cannot draft here: the proposer has no memory"):
            await around.start("drafter", f"proposer={checkpoint}", settings=none)

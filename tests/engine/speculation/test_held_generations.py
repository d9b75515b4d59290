"""Generations that a grammar holds: how they end, what is cut off, what goes on elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import DraftSource
from kakeya_fleet.engine.errors import BadParameters, GrammarRefused
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import StopReason
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import streams
from tests.support.guides import RuleGuide, these, third_of

SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)
PROMPT = [(7 * index) % 48 for index in range(50)]
TEXT = [3, 9, 9, 27, 4, 1, 40, 40, 2, 11, 5]
STOP = 47
PENALISED = SamplingParameters(temperature=0.8, seed=3, frequency_penalty=1.2)


def opened(history: Sequence[int] = PROMPT) -> Session:
    verifier = hashing.HashVerifier()
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(history)
    return session


def held_to(*texts: Sequence[int], stop: bool = True, count: int = 100) -> GenerationParameters:
    return streams.parameters(
        count,
        guide=these(hashing.VOCABULARY, texts),
        stop_ids=frozenset({STOP}) if stop else frozenset(),
    )


def drafters(text: Sequence[int]) -> list[DraftSource | None]:
    whole = [*PROMPT, *text]
    return [
        None,
        sources.OracleSource(whole, hashing.VOCABULARY),
        sources.AdversarialSource(whole, hashing.VOCABULARY),
        sources.ChaoticSource(whole, hashing.VOCABULARY, seed=4),
    ]


@pytest.mark.parametrize("drafter", range(4))
@pytest.mark.parametrize("stop", [True, False])
async def test_a_whole_answer_ends_without_a_stop_id(drafter: int, stop: bool) -> None:
    """Also where the draft goes on with one: else blocks would change the stream."""
    source = drafters([*TEXT, STOP, STOP])[drafter]
    for count in (100, len(TEXT)):
        asked = held_to(TEXT, stop=stop, count=count)
        tokens, done = await streams.collect(opened(), source, asked, run=sources.yielding)
        assert (tokens, done.stop_reason) == (TEXT, StopReason.COMPLETE)


@pytest.mark.parametrize("drafter", range(4))
async def test_where_it_may_end_and_may_go_on_the_verifier_chooses(drafter: int) -> None:
    texts = [TEXT[:count] for count in range(1, len(TEXT) + 1)]
    alone, end = await streams.collect(opened(), None, held_to(*texts), run=sources.yielding)
    assert (alone[-1] == STOP) == (end.stop_reason is StopReason.STOP_TOKEN)
    assert alone[: len(alone) - (alone[-1] == STOP)] in texts
    source = drafters([*alone, 1, 2, 3])[drafter]
    tokens, done = await streams.collect(opened(), source, held_to(*texts), run=sources.yielding)
    assert (tokens, done.stop_reason) == (alone, end.stop_reason)


async def test_what_the_grammar_forbids_is_cut_off_and_counted() -> None:
    liar = sources.OracleSource([*PROMPT, *TEXT[:3], *([46] * 60)], hashing.VOCABULARY)
    asked = replace(held_to(TEXT), block_size=8)
    told: list[tuple[int, int, int]] = []
    tokens, done = await streams.collect(
        opened(),
        liar,
        asked,
        run=sources.yielding,
        on_block=lambda block: told.append(
            (block.drafted_count, block.accepted_count, block.forbidden_count)
        ),
    )
    assert tokens == TEXT
    assert told[0] == (8, 3, 5)
    statistics = done.speculation
    assert statistics.forbidden_count == sum(forbidden for _, _, forbidden in told)
    assert statistics.drafted_count == sum(drafted for drafted, _, _ in told)
    assert statistics.accepted_count == 3
    # A forbidden token was compared, though no forward had it.
    assert statistics.tried_count > 3


async def test_only_what_may_be_chosen_goes_into_a_forward() -> None:
    session = opened()
    widths: list[int] = []
    forward = session.verifier.forward_batch

    def watched(feeds):  # type: ignore[no-untyped-def]
        widths.extend(len(feed.token_ids) for feed in feeds if feed.want_logits)
        return forward(feeds)

    session.verifier.forward_batch = watched  # type: ignore[method-assign]
    liar = sources.OracleSource([*PROMPT, *([46] * 60)], hashing.VOCABULARY)
    await streams.collect(session, liar, held_to(TEXT), run=sources.yielding)
    assert widths == [1] * len(TEXT)


@pytest.mark.parametrize("cut", [1, 7, 19])
async def test_one_that_goes_on_elsewhere_is_the_same_stream(cut: int) -> None:
    guide = third_of(hashing.VOCABULARY)
    asked = streams.parameters(30, sampling=PENALISED, guide=guide)
    whole, _ = await streams.collect(opened(), None, asked, run=sources.yielding)
    said = whole[:cut]
    rest = streams.parameters(
        30 - cut, sampling=PENALISED, guide=third_of(hashing.VOCABULARY), said_count=cut
    )
    assert rest.guide is not None
    rest.guide.take(said)
    tokens, _ = await streams.collect(opened([*PROMPT, *said]), None, rest, run=sources.yielding)
    assert said + tokens == whole
    # What the lost node said counts: without it another stream would come.
    forgetful = streams.parameters(30 - cut, sampling=PENALISED)
    tokens, _ = await streams.collect(
        opened([*PROMPT, *said]), None, forgetful, run=sources.yielding
    )
    assert said + tokens != whole


async def test_one_that_was_whole_already_says_no_more() -> None:
    guide = these(hashing.VOCABULARY, [TEXT])
    guide.take(TEXT)
    asked = streams.parameters(30, guide=guide, said_count=len(TEXT))
    tokens, done = await streams.collect(
        opened([*PROMPT, *TEXT]), None, asked, run=sources.yielding
    )
    assert (tokens, done.stop_reason) == ([], StopReason.COMPLETE)


async def test_more_said_than_the_history_has_is_refused() -> None:
    asked = streams.parameters(3, sampling=PENALISED, said_count=51)
    with pytest.raises(BadParameters, match="51 tokens"):
        await streams.collect(opened(), None, asked, run=sources.yielding)
    with pytest.raises(BadParameters, match="negative"):
        streams.parameters(3, said_count=-1)


@pytest.mark.parametrize("drafter", [0, 1])
async def test_a_dead_end_is_told_behind_the_tokens_before_it(drafter: int) -> None:
    session = opened()
    guide = RuleGuide(hashing.VOCABULARY, lambda said: [] if len(said) == 5 else [TEXT[len(said)]])
    asked = streams.parameters(30, guide=guide)
    with pytest.raises(GrammarRefused, match="position 55"):
        await streams.collect(session, drafters(TEXT)[drafter], asked, run=sources.yielding)
    assert session.history[len(PROMPT) :] == TEXT[:5]
    # The session lives.
    tokens, _ = await streams.collect(session, None, streams.parameters(2), run=sources.yielding)
    assert len(tokens) == 2


async def test_tokens_that_are_told_together_end_with_the_answer() -> None:
    session = opened()
    tokens, done = await streams.collect(
        session, None, held_to(TEXT), run=sources.yielding, gather_seconds=60.0
    )
    assert (tokens, done.stop_reason) == (TEXT, StopReason.COMPLETE)


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 11, 100])
async def test_what_is_forced_needs_no_forward_of_its_own(limit: int) -> None:
    """All but the third token of the answer are forced: blocks of up to 1 + 3."""
    others = [[*TEXT[:2], each, *TEXT[3:]] for each in (9, 10, 12)]
    told: list[tuple[int, int, int]] = []
    tokens, done = await streams.collect(
        opened(),
        None,
        held_to(*others, count=limit),
        run=sources.yielding,
        on_block=lambda block: told.append(
            (block.committed_count, block.drafted_count, block.accepted_count)
        ),
    )
    assert any(tokens == text[:limit] for text in others)
    assert done.generated_token_count == min(limit, len(TEXT))
    # Nobody drafted.
    assert all(each[1:] == (0, 0) for each in told)
    if limit >= len(TEXT):
        assert [each[0] for each in told] == [3, 4, 4]

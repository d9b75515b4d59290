"""A plain model drafts what it would say itself behind the latest tokens, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends import BACKENDS
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.draft import DraftState
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, Verifier
from kakeya_fleet.engine.errors import (
    BadParameters,
    DraftFailed,
    DraftFaultKind,
    ModelUnusable,
)
from kakeya_fleet.engine.proposers.autoregressive import (
    FEW,
    MOST_BEHIND,
    READ_AT_ONCE,
    AutoregressiveDraftState,
    AutoregressiveProposer,
)
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters, choose_token
from tests.support import hash_verifier as hashing
from tests.support.breadth import again, all_wide_but, wide
from tests.support.small_verifiers import COMPILED, VERIFIERS, small_verifier

MOST_READ = 40
ALPHABETS = st.sampled_from((hashing.VOCABULARY, 3))
"""Few tokens repeat what stood before all the time, so that much is guessed."""
TOKENS = ALPHABETS.flatmap(lambda size: st.lists(st.integers(0, size - 1), max_size=60))


def still() -> float:
    """A clock that stands: nothing takes time, and no draft ends before it is as long as asked."""
    return 0.0


def caught_up(state: AutoregressiveDraftState) -> AutoregressiveDraftState:
    while state.is_behind:
        state.read()
    return state


def latest(history: Sequence[int]) -> Sequence[int]:
    """What the docstring's formula leaves of a history."""
    half, excess = MOST_READ // 2, len(history) - MOST_READ
    return history[half * -(-excess // half) :] if excess > 0 else history


def said(text: Sequence[int], count: int) -> tuple[int, ...]:
    """What the hash verifier says behind a text, by its rule alone."""
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=4096)
    return tuple(hashing.expected_stream(text, spec, count, GREEDY))


@again(4)
@settings(deadline=None, max_examples=25)
@given(
    prefix=TOKENS.filter(bool),
    steps=st.lists(st.tuples(TOKENS, st.integers(0, 9)), max_size=6),
    assumed=TOKENS,
    goes_back=st.booleans(),
)
def test_drafts_are_the_models_own_words_behind_the_latest_tokens(
    prefix: list[int],
    steps: list[tuple[list[int], int]],
    assumed: list[int],
    goes_back: bool,
) -> None:
    """However much of each draft was committed, and what else came behind it."""
    verifier = hashing.HashVerifier()
    state = AutoregressiveDraftState(verifier, prefix, still, MOST_READ, goes_back=goes_back)
    history = list(prefix)
    for tokens, kept in steps:
        drafted = caught_up(state).propose((), 8, 0).token_ids
        assert drafted == said(latest(history), 8)
        behind = caught_up(state).propose(assumed, 2, 0).token_ids
        assert behind == said([*latest(history), *assumed], 2)
        committed = [*drafted[:kept], *tokens]
        state.commit(committed)
        history += committed
        assert state.length == len(history)
    most = MOST_READ + MOST_BEHIND + hashing.SEGMENT
    copies = 1 if goes_back else 2
    assert verifier.pool.held_bytes <= copies * most * hashing.SLOT_BYTES
    state.close()
    state.close()
    assert verifier.pool.used_bytes == 0


@again(8)
@settings(deadline=None, max_examples=12)
@given(
    prefix=st.lists(st.integers(0, hashing.VOCABULARY - 1), min_size=1, max_size=90),
    assumed=st.lists(st.integers(0, hashing.VOCABULARY - 1), max_size=9),
    sampling=st.builds(
        SamplingParameters,
        temperature=st.floats(0.2, 2.0),
        seed=st.integers(0, 2**64 - 1),
        top_p=st.sampled_from((0.0, 0.8, 1.0)),
        top_k=st.sampled_from((0, 5)),
        min_p=st.sampled_from((0.0, 0.1)),
    ),
)
def test_drafts_are_drawn_with_the_verifiers_numbers_at_the_places_of_the_whole_history(
    prefix: list[int], assumed: list[int], sampling: SamplingParameters
) -> None:
    verifier = hashing.HashVerifier()
    state = AutoregressiveDraftState(verifier, prefix, still, MOST_READ, goes_back=True)
    drafted = caught_up(state).propose(assumed, 6, 0, sampling.drawing).token_ids
    seen = [*latest(prefix), *assumed]
    for index, token in enumerate(drafted):
        cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=4096))
        logits = hashed_logits(verifier, cache, [*seen, *drafted[:index]])
        assert token == choose_token(logits, sampling, len(prefix) + len(assumed) + index)
    # The next draft, of greedy text, has nothing of it.
    assert state.propose(assumed, 6, 0).token_ids == said(seen, 6)


def hashed_logits(verifier: hashing.HashVerifier, cache: KvCache, tokens: list[int]) -> Logits:
    """Behind all of them."""
    for first in range(0, len(tokens), 16):
        logits = verifier.forward(cache, tokens[first : first + 16], want_logits=True)
    assert logits is not None
    last: Logits = logits[-1]
    return last


def test_what_was_committed_of_a_draft_is_not_computed_again() -> None:
    verifier = hashing.HashVerifier()
    state = AutoregressiveProposer(verifier, still, most_read=400).open(range(20))
    drafted = state.propose((), 8, 0).token_ids
    state.commit([*drafted[:5], 3])
    verifier.batches.clear()
    # One more has no room for guesses.
    state.propose((), 1, 0)
    # What the verifier said instead of the sixth: the five are there.
    assert list(verifier.batches) == [(1,)]


def test_a_draft_ends_with_the_answer_and_the_next_goes_on_behind_it() -> None:
    verifier, history = hashing.HashVerifier(), [3, 1, 4]
    words = said(history, 8)
    proposer = AutoregressiveProposer(verifier, still, ends=words[2:3])
    state = proposer.open(history)
    drafted = state.propose((), 8, 0).token_ids
    assert drafted == words[: words.index(words[2]) + 1]
    state.commit(drafted)
    assert state.propose((), 1, 0).token_ids == said([*history, *drafted], 1)


class Timed(hashing.HashVerifier):
    """A forward takes a second, or one a row; all tokens are as close choices as can be."""

    def __init__(self, *, by_rows: bool = False) -> None:
        super().__init__()
        self.seconds, self._by_rows = 0.0, by_rows

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        self.seconds += sum(len(feed.token_ids) for feed in feeds) if self._by_rows else 1
        outputs = super().forward_batch(feeds)
        for logits in [output.logits for output in outputs if output.logits is not None]:
            for row in logits:
                best = int(row.argmax())
                row[(best + 1) % len(row)] = row[best] - 0.01
        return outputs


@pytest.mark.parametrize(("verifying", "is_long"), [(0.5, False), (1e9, True)])
def test_a_draft_ends_where_going_on_is_worth_less_than_the_next_block(
    verifying: float, *, is_long: bool
) -> None:
    """Of tokens that are wrong as often as not, behind a quick verifier and behind a slow one."""
    verifier, history = Timed(), [3, 1, 4]
    state = AutoregressiveProposer(cast(Verifier, verifier), lambda: verifier.seconds).open(history)
    for _ in range(9):
        drafted = state.propose((), 8, 0).token_ids
        verifier.seconds += verifying
        state.commit([(drafted[0] + 1) % 7 + 20])
    assert (len(drafted) == 8) is is_long
    # What is drafted ahead takes nobody's time.
    assert len(state.propose((5,), 8, 0).token_ids) == 8


def test_what_reading_takes_is_not_what_a_drafted_token_takes() -> None:
    """Else short drafts would seem dear, and stay short."""
    verifier = Timed(by_rows=True)
    state = AutoregressiveProposer(cast(Verifier, verifier), lambda: verifier.seconds).open(
        range(40)
    )
    drafted = state.propose((), 8, 0).token_ids
    verifier.seconds += 10
    state.commit(drafted)
    assert len(state.propose((), 8, 0).token_ids) == 8


def guessing(right: int) -> list[int]:
    """A history that ends as it began, whose first so many of two guesses the model says too.

    What it says instead of the next stands nowhere in it, so that nothing is guessed behind that.
    """
    for filler in range(3, hashing.VOCABULARY):
        for followed in range(3, hashing.VOCABULARY):
            history, guesses = [1, 2, followed, filler, 1, 2], (followed, filler)
            words = said(history, 3)
            if words[:right] == guesses[:right] and (right == 2 or words[right] not in history):
                return history
    raise AssertionError("the model says none of them")


@pytest.mark.parametrize("goes_back", [True, False])
@pytest.mark.parametrize("right", [0, 1, 2])
def test_guesses_that_are_right_save_forwards_and_wrong_ones_leave_nothing(
    right: int, goes_back: bool
) -> None:
    verifier, history = hashing.HashVerifier(), guessing(right)
    state = AutoregressiveDraftState(verifier, history, still, MOST_READ, goes_back=goes_back)
    draft = state.propose((), 3, 0)
    assert draft.token_ids == said(history, 3)
    first = (len(history) + 2,) if goes_back else (3,)
    counts = list(verifier.batches) if goes_back else list(verifier.batches)[1:]
    assert counts == [first, *[(1,)] * (2 - right)]
    assert draft.forward_pass_count == len(counts)
    # One token has no room for what comes behind a guess.
    verifier.batches.clear()
    assert state.propose((), 1, 0).token_ids == said(history, 1)
    assert list(verifier.batches) == [(1,)]
    state.close()
    assert verifier.pool.used_bytes == 0


class Slow(hashing.HashVerifier):
    """Each row takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        self.seconds += sum(len(feed.token_ids) for feed in feeds)
        return super().forward_batch(feeds)


def test_where_rows_are_dear_nothing_is_guessed() -> None:
    verifier = Slow()
    proposer = AutoregressiveProposer(cast(Verifier, verifier), lambda: verifier.seconds)
    learning = proposer.open(range(6))
    learning.propose((), 4, 0)
    state = proposer.open(guessing(2))
    state.propose((), 1, 0)
    verifier.batches.clear()
    state.propose((), 3, 0)
    assert list(verifier.batches) == [(1,), (1,), (1,)]


@pytest.mark.parametrize("kept", [0, 3, 8])
def test_a_wholly_accepted_draft_costs_two_tokens(kept: int) -> None:
    verifier = hashing.HashVerifier()
    state = AutoregressiveProposer(verifier, still, most_read=400).open(range(20))
    drafted = state.propose((), 8, 0).token_ids
    state.commit([*drafted[:kept], 3])
    verifier.batches.clear()
    state.propose((), 1, 0)
    assert list(verifier.batches) == [(2,) if kept == 8 else (1,)]


class Interrupted(hashing.HashVerifier):
    """Calls `then` in its forward number `at`."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        super().__init__()
        self._left, self._then = at, then

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        self._left -= 1
        if self._left == 0:
            self._then()
        return super().forward_batch(feeds)


def test_a_draft_that_is_taken_back_ends_with_its_next_token_and_the_next_one_is_whole() -> None:
    def take_back() -> None:
        state.take_back()

    # The first one reads.
    verifier = Interrupted(4, take_back)
    state = AutoregressiveDraftState(verifier, range(20), still, 400, goes_back=True)
    cut = state.propose((), 8, 0)
    assert cut.token_ids == said(range(20), 8)[:3]
    assert cut.forward_pass_count == 3
    # Nobody drafted: of the next one nothing is taken back.
    state.take_back()
    assert state.propose((), 8, 0).token_ids == said(range(20), 8)


def test_a_long_history_is_read_in_steps_and_drafts_nothing_meanwhile() -> None:
    verifier = hashing.HashVerifier()
    history = [index % hashing.VOCABULARY for index in range(1000)]
    state = AutoregressiveProposer(verifier, still, most_read=300).open(history)
    steps = 0
    while state.is_behind:
        # Nor what the text itself says: who drafts nothing is given time to read.
        assert state.propose((), 4, 0).token_ids == ()
        read = verifier.batches.copy()
        state.read()
        steps += 1
        assert sum(batch[0] for batch in list(verifier.batches)[len(read) :]) <= READ_AT_ONCE
    assert steps >= 2
    # 300 of 1,000 are never more, and half of them never fewer.
    assert 150 <= sum(batch[0] for batch in verifier.batches) <= 300
    assert len(state.propose((), 4, 0).token_ids) == 4


def test_a_model_of_few_positions_reads_as_many_as_it_has() -> None:
    verifier = hashing.HashVerifier(context_length=MOST_BEHIND + 30)
    history = [index * 7 % hashing.VOCABULARY for index in range(500)]
    state = caught_up(AutoregressiveProposer(verifier).open(history))
    assert len(state.propose(range(33), 40, 0).token_ids) == 40


def test_a_model_of_too_few_positions_does_not_draft() -> None:
    AutoregressiveProposer(hashing.HashVerifier(context_length=MOST_BEHIND + 2))
    with pytest.raises(ModelUnusable, match="has 130 positions"):
        AutoregressiveProposer(hashing.HashVerifier(context_length=MOST_BEHIND + 1))


def test_no_memory_is_a_fault_and_leaves_nothing_behind() -> None:
    verifier = hashing.HashVerifier()
    proposer = AutoregressiveProposer(verifier)
    verifier.pool.budget_bytes = 4 * hashing.SLAB_BYTES
    state, other = proposer.open(range(20)), proposer.open(range(20))
    assert len(state.propose((), 4, 0).token_ids) == 4
    with pytest.raises(DraftFailed, match="no memory") as failed:
        other.propose((), 40, 0)
    assert failed.value.kind is DraftFaultKind.UNREACHABLE
    other.close()
    assert len(state.propose((), 4, 0).token_ids) == 4
    state.close()
    assert verifier.pool.used_bytes == 0


def test_ids_of_another_vocabulary_are_a_fault() -> None:
    state = AutoregressiveProposer(hashing.HashVerifier()).open([1, hashing.VOCABULARY])
    with pytest.raises(DraftFailed, match="vocabulary") as failed:
        state.propose((), 4, 0)
    assert failed.value.kind is DraftFaultKind.OUT_OF_VOCABULARY


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        *((name, "Qwen3ForCausalLM") for name in VERIFIERS),
        *(
            (wide if name == "mlx" else pytest.param)(name, "Qwen3_5ForCausalLM")
            for name in sorted(BACKENDS)
        ),
    ],
)
def test_real_models_draft_what_they_say(
    name: str, architecture: str, random_checkpoint: Callable[..., Path]
) -> None:
    """One keeps keys and values of all positions, one the state of its last alone."""
    verifier = small_verifier(name, random_checkpoint, architecture)
    state = AutoregressiveProposer(verifier).open([5, 3, 8, 2, 9, 4])
    history = [5, 3, 8, 2, 9, 4]
    for kept in (8, 3, 0):
        drafted = state.propose((), 8, 0).token_ids
        cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=64))
        verifier.forward(cache, history[:-1], want_logits=False)
        coming, expected = history[-1], []
        for _ in drafted:
            logits = verifier.forward(cache, [coming], want_logits=True)
            assert logits is not None
            coming = int(logits[-1].argmax())
            expected.append(coming)
        cache.release()
        assert list(drafted) == expected
        committed = [*drafted[:kept], 7]
        state.commit(committed)
        history += committed
    state.close()
    assert verifier.pool.used_bytes == 0


# Each back end gives and takes its numbers in `test_given_keys_values`.
@pytest.fixture(params=all_wide_but([COMPILED], VERIFIERS))
def small(request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]) -> Verifier:
    return small_verifier(request.param, random_checkpoint)


class Counted:
    """A verifier, and the tokens of its forwards."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self.token_count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._verifier, name)

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        self.token_count += sum(len(feed.token_ids) for feed in feeds)
        return self._verifier.forward_batch(feeds)


TEXT = [(7 * index + index * index // 5) % 96 for index in range(300)]


def read_by(verifier: Verifier, count: int) -> KvCache:
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=600))
    for first in range(0, count, 16):
        verifier.forward(cache, TEXT[first : min(count, first + 16)], want_logits=False)
    return cache


def give(state: DraftState, source: KvCache, first: int, end: int) -> None:
    numbers = source.keys_values(first, end)
    assert numbers is not None
    state.take_keys_values(first, end - first, numbers)


def test_what_it_is_given_it_does_not_read(small: Verifier) -> None:
    """In pieces, behind drafts that were not accepted, and again into what it has."""
    counted = Counted(small)
    proposer = AutoregressiveProposer(cast(Verifier, counted), still, most_read=400, most_given=500)
    assert proposer.info.given_history_tokens == 500
    source = read_by(small, 250)
    state, reading = proposer.open(()), proposer.open(TEXT[:200])
    for first, end in ((0, 150), (150, 199)):
        state.commit(TEXT[first:end])
        give(state, source, first, end)
    state.commit(TEXT[199:200])
    assert not state.is_behind
    counted.token_count = 0
    drafted = state.propose((), 4, 0).token_ids
    # With what was guessed.
    assert counted.token_count <= 4 * FEW
    assert drafted == caught_up(reading).propose((), 4, 0).token_ids
    # None of the draft was committed, and more than it reads at once.
    for each in (state, reading):
        each.commit(TEXT[200:250])
    give(state, source, 199, 249)
    give(state, source, 100, 120)
    give(state, source, 120, 249)
    counted.token_count = 0
    drafted = state.propose((), 4, 0).token_ids
    # With what was guessed.
    assert counted.token_count <= 4 * FEW
    assert drafted == caught_up(reading).propose((), 4, 0).token_ids
    for held in (state, reading):
        held.close()
    source.release()
    assert small.pool.used_bytes == 0


def test_of_what_it_is_given_it_sees_more_than_it_would_read(small: Verifier) -> None:
    """And of what comes behind; until that is too long, or comes too fast to be read."""
    source = read_by(small, 200)
    whole = AutoregressiveProposer(small, still, most_read=400)
    proposer = AutoregressiveProposer(small, still, most_read=MOST_READ, most_given=240)
    state = proposer.open(())
    state.commit(TEXT[:200])
    give(state, source, 0, 199)
    for end in (200, 230, 240):
        state.commit(TEXT[state.length : end])
        expected = caught_up(whole.open(TEXT[:end])).propose((), 4, 0).token_ids
        assert caught_up(state).propose((), 4, 0).token_ids == expected
    other = proposer.open(())
    other.commit(TEXT[:120])
    give(other, source, 0, 119)
    for each, end in ((state, 241), (other, 240)):
        each.commit(TEXT[each.length : end])
        expected = caught_up(whole.open(latest(TEXT[:end]))).propose((), 4, 0).token_ids
        assert caught_up(each).propose((), 4, 0).token_ids == expected


def test_of_what_has_no_memory_it_reads_the_latest(small: Verifier) -> None:
    source, pool = read_by(small, 290), small.pool
    proposer = AutoregressiveProposer(small, still, most_read=MOST_READ)
    reading = caught_up(proposer.open(TEXT[:290]))
    expected = reading.propose((), 4, 0).token_ids
    segment = pool.used_bytes
    reading.close()
    segment -= pool.used_bytes
    state, short = proposer.open(()), proposer.open(())
    state.commit(TEXT[:290])
    # Room for the first segment, of two.
    pool.budget_bytes = pool.used_bytes + segment
    give(state, source, 0, 250)
    assert pool.used_bytes == pool.budget_bytes
    short.commit(TEXT[:20])
    with pytest.raises(DraftFailed, match="no memory"):
        give(short, source, 0, 19)
    give(state, source, 250, 289)
    assert state.is_behind
    assert caught_up(state).propose((), 4, 0).token_ids == expected
    state.close()
    # Where it is its own forward that has none, that draft is lost.
    grown = proposer.open(())
    grown.commit(TEXT[:250])
    give(grown, source, 0, 249)
    grown.commit(TEXT[250:290])
    with pytest.raises(DraftFailed, match="no memory"):
        grown.propose((), 4, 0)
    assert caught_up(grown).propose((), 4, 0).token_ids == expected
    pool.budget_bytes = None


def test_what_it_cannot_use_it_reads_by_itself(small: Verifier) -> None:
    source = read_by(small, 250)
    proposer = AutoregressiveProposer(small, still, most_read=MOST_READ)
    expected = caught_up(proposer.open(TEXT[:200])).propose((), 4, 0).token_ids
    # Beyond what it reads its positions are others.
    long = proposer.open(TEXT[:200])
    give(long, source, 0, 100)
    assert caught_up(long).propose((), 4, 0).token_ids == expected
    # A gap, also where both sides of it have the same tokens, and what is not committed.
    proposer = AutoregressiveProposer(small, still, most_read=400)
    gap = proposer.open(TEXT[:10] * 10)
    give(gap, source, 20, 60)
    give(gap, source, 0, 120)
    assert gap.is_behind
    expected = caught_up(proposer.open(TEXT[:10] * 10)).propose((), 4, 0).token_ids
    assert caught_up(gap).propose((), 4, 0).token_ids == expected


def test_numbers_of_another_model_are_refused_and_cost_nothing(small: Verifier) -> None:
    state = AutoregressiveProposer(small, still, most_read=400).open(TEXT[:100])
    numbers = read_by(small, 99).keys_values(0, 99)
    assert numbers is not None
    with pytest.raises(BadParameters, match="99 positions of this model have"):
        state.take_keys_values(0, 99, tuple(each[:1] for each in numbers))
    assert state.is_behind
    state.take_keys_values(0, 99, numbers)
    assert not state.is_behind


def test_one_that_keeps_no_keys_is_given_none() -> None:
    assert AutoregressiveProposer(hashing.HashVerifier()).info.given_history_tokens == 0

"""Whatever is drafted, in blocks of any size: every choice is the one without drafts."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsIndex, cast, overload

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sessions.acceptance import Choice, decide
from kakeya_fleet.engine.sessions.history import History
from tests.support.breadth import again
from tests.support.guides import RuleGuide, these, third_of

if TYPE_CHECKING:
    from _typeshed import TraceFunction

VOCABULARY = 12
PROMPT = (3, 1, 4, 1, 5)
COUNT = 40

EACH: dict[str, dict[str, Any]] = {
    "temperature": {},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "repetition_penalty": {"repetition_penalty": 1.8},
    "logit_bias": {"logit_bias": LogitBias.of({2: 1.5, 5: -np.inf})},
    "log_probabilities": {"top_log_probabilities": 3},
    "frequency_penalty": {"frequency_penalty": 0.4},
    "presence_penalty": {"presence_penalty": -0.7},
}
ALL = {name: value for fields in EACH.values() for name, value in fields.items()}


Drafts = Callable[[list[int]], list[int]]


def row_after(tokens: Sequence[int]) -> list[float]:
    """The model: logits of either sign that depend on the last three tokens."""
    rng = random.Random(repr(tuple(tokens[-3:])))
    return [rng.uniform(-2.0, 3.0) for _ in range(VOCABULARY)]


def rows_for(tokens: list[int], draft: list[int]) -> Logits:
    texts = [tokens + draft[:count] for count in range(len(draft) + 1)]
    return np.array([row_after(text) for text in texts], np.float32)


def alone(parameters: SamplingParameters, *, held: bool = False) -> list[Choice]:
    """Token by token, each from a history, and of what was said, that are made anew."""
    tokens, choices = list(PROMPT), []
    for _ in range(COUNT):
        answer = answer_with(tokens[len(PROMPT) :], held=held)
        (choice,) = decide(rows_for(tokens, []), [], parameters, History(tokens), answer)
        choices.append(choice)
        tokens.append(choice.token_id)
    return choices


def answer_with(said: list[int], *, held: bool) -> Answer:
    guide = third_of(VOCABULARY) if held else None
    if guide is not None:
        guide.take(said)
    return Answer(VOCABULARY, said, guide)


def in_blocks(
    parameters: SamplingParameters, drafts: Drafts, *, held: bool = False
) -> list[Choice]:
    history, answer = History(PROMPT), answer_with([], held=held)
    choices: list[Choice] = []
    while len(choices) < COUNT:
        draft = drafts(list(history))
        decided = decide(rows_for(list(history), draft), draft, parameters, history, answer)
        assert 1 <= len(decided) <= len(draft) + 1
        choices += decided
        history.extend(choice.token_id for choice in decided)
        answer.take([choice.token_id for choice in decided])
    return choices[:COUNT]


def spoiled_drafts(truth: Sequence[Choice], rng: random.Random) -> Drafts:
    """Drafts of 0 to 6 tokens, of which each may be wrong."""
    text = [*PROMPT, *(choice.token_id for choice in truth)]

    def draft(tokens: list[int]) -> list[int]:
        right = text[len(tokens) : len(tokens) + rng.randrange(7)]
        return [token if rng.random() < 0.8 else rng.randrange(VOCABULARY) for token in right]

    return draft


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", [*EACH, "all"])
def test_each_parameter_alone_and_all_together(name: str, temperature: float, held: bool) -> None:
    fields = ALL if name == "all" else EACH[name]
    parameters = SamplingParameters(temperature, seed=8, **fields)
    truth = alone(parameters, held=held)
    assert held == all(
        third_of(VOCABULARY).fitting([choice.token_id for choice in truth[:end]]) == end
        for end in (5, COUNT)
    )
    for seed in range(2):
        drafts = spoiled_drafts(truth, random.Random(seed))
        assert in_blocks(parameters, drafts, held=held) == truth


PARAMETERS = st.builds(
    SamplingParameters,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    top_p=st.floats(0, 1),
    top_k=st.integers(0, VOCABULARY),
    seed=st.integers(0, 2**64 - 1),
    min_p=st.floats(0, 1),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.1, 3.0]),
    logit_bias=st.dictionaries(
        st.integers(0, VOCABULARY - 1), st.floats(-5, 5) | st.just(-np.inf), max_size=VOCABULARY - 1
    ).map(LogitBias.of),
    top_log_probabilities=st.none() | st.integers(0, 20),
    frequency_penalty=st.floats(-2, 2),
    presence_penalty=st.floats(-2, 2),
)


@again(3)
@settings(deadline=None, max_examples=10)
@given(PARAMETERS, st.randoms(use_true_random=False))
def test_any_parameters_and_any_drafts(parameters: SamplingParameters, rng: random.Random) -> None:
    truth = alone(parameters)
    assert in_blocks(parameters, spoiled_drafts(truth, rng)) == truth


def test_a_drafted_token_counts_as_history_for_the_row_behind_it() -> None:
    """Were only the committed tokens penalised, the second row would choose id 1 again."""
    rows = np.array([[0.0, 2.0, 1.5], [0.0, 2.0, 1.5], [0.0, 2.0, 1.5]], np.float32)
    parameters = SamplingParameters(repetition_penalty=2.0)
    choices = decide(rows, [1, 2], parameters, History([0]))
    assert [choice.token_id for choice in choices] == [1, 2, 1]


def test_what_was_decided_and_then_cut_off_leaves_no_trace() -> None:
    history = History([0])
    rows = np.array([[0.0, 2.0, 1.5], [0.0, 2.0, 1.5]], np.float32)
    parameters = SamplingParameters(repetition_penalty=2.0)
    first = decide(rows, [1], parameters, history)
    assert first == decide(rows, [1], parameters, history)
    assert not history.seen(3)[1:].any()


def test_a_drafted_token_counts_for_the_row_behind_it() -> None:
    rows = np.array([[0.0, 2.0, 1.5], [0.0, 2.0, 1.5], [0.0, 2.0, 1.5]], np.float32)
    parameters = SamplingParameters(frequency_penalty=1.0)
    answer = Answer(3)
    choices = decide(rows, [1, 2], parameters, History([0]), answer)
    assert [choice.token_id for choice in choices] == [1, 2, 1]
    assert not answer.counts.any()


def test_nothing_is_chosen_behind_a_stop_id_or_a_whole_answer() -> None:
    rows = np.tile(np.array([0.0, 2.0, 1.5], np.float32), (3, 1))
    stopped = decide(rows, [1, 1], GREEDY, History([0]), Answer(3), frozenset({1}))
    assert [choice.token_id for choice in stopped] == [1]
    whole = Answer(3, guide=these(3, [(1, 2)]), stop_ids=frozenset({0}))
    choices = decide(rows, [1, 2], GREEDY, History([0]), whole, frozenset({0}))
    assert [choice.token_id for choice in choices] == [1, 2]
    assert not whole.is_complete, "a decision takes nothing"


def test_a_grammar_without_a_choice_ends_what_is_accepted_before_it() -> None:
    rows = np.tile(np.array([0.0, 2.0, 1.5], np.float32), (3, 1))
    dead = Answer(3, guide=RuleGuide(3, lambda said: [] if len(said) == 2 else [1]))
    choices = decide(rows, [1, 1], GREEDY, History([0]), dead)
    assert [choice.token_id for choice in choices] == [1, 1]
    dead.take([1, 1])
    with pytest.raises(GrammarRefused):
        decide(rows[:1], [], GREEDY, History([0, 1, 1]), dead)


class CountedTokens(list[int]):
    """Counts how many of its tokens are read."""

    read_count = 0

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | list[int]:
        found = super().__getitem__(index)
        self.read_count += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        for token in super().__iter__():
            self.read_count += 1
            yield token


def test_a_step_reads_what_was_appended_however_long_the_history_is() -> None:
    rows = np.zeros((1, 1000), np.float32)
    parameters = SamplingParameters(1.0, seed=1, repetition_penalty=1.2)
    history = History()
    tokens = CountedTokens(index % 1000 for index in range(20_000))
    history._token_ids = cast(Any, tokens)
    read = []
    for appended in ([], [7], [7, 8, 9]):
        history.extend(appended)
        before = tokens.read_count
        decide(rows, [], parameters, history)
        read.append(tokens.read_count - before)
    assert read == [20_000, 1, 3]


def instruction_count(call: Callable[[], object]) -> int:
    """Python's instructions in `call`: a loop over the vocabulary has several an id."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_a_large_vocabulary_is_neither_sorted_nor_looped_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary_size = 150_000
    rows = np.random.default_rng(1).standard_normal((1, vocabulary_size)).astype(np.float32)
    history = History(range(0, vocabulary_size, 7))
    sorted_sizes: list[int] = []

    def counting(sort: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def counted(values: np.ndarray, *arguments: object, **options: object) -> np.ndarray:
            sorted_sizes.append(values.size)
            return sort(values, *arguments, **options)

        return counted

    for name in ("sort", "argsort", "lexsort"):
        monkeypatch.setattr(np, name, counting(getattr(np, name)))
    assert instruction_count(lambda: decide(rows, [], GREEDY, history)) < vocabulary_size / 20
    assert sorted_sizes == []
    for fields in (*EACH.values(), ALL):
        parameters = replace(SamplingParameters(1.0, seed=1), **fields)
        answer = Answer(vocabulary_size)
        steps = instruction_count(partial(decide, rows, [], parameters, history, answer))
        assert steps < vocabulary_size / 20, fields
    assert sum(sorted_sizes) < vocabulary_size / 20

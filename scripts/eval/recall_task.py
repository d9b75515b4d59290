"""Recall tasks: a fact placed somewhere in Python code, asked for later.

A fact is the comment line `# fact: river = copper`; the question is `# recall: river =` and its
answer ` copper`. Everything here works on token ids, so lengths and depths are exact, and every
draw comes from the generator passed in.

A line begins with its newline, as tokens of the tokenizer do, so that a line can be inserted in
front of any token that begins with a newline without changing how the rest is tokenised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from scripts.eval.recall_words import WORDS

IGNORED, TEXT, ANSWER, REPEATED = 0, 1, 2, 3
"""What a position's token is worth as a prediction target."""

LEAST_WORDS = 128

# A question is placed at the end of the row this often, else anywhere after its fact.
END_QUESTION_PROBABILITY = 0.5


@dataclass(frozen=True)
class RecallFormat:
    """The token ids that facts and questions are made of."""

    fact_prefix: np.ndarray
    """Ids of `\\n# fact:`, shape (n,)."""
    recall_prefix: np.ndarray
    """Ids of `\\n# recall:`, shape (n,), the same length as `fact_prefix`."""
    equals: int
    """The id of ` =`."""
    words: np.ndarray
    """One id per word that is one token (with its leading space), shape (words,)."""
    line_starts: np.ndarray
    """Whether the token with this id begins with a newline, bool of shape (vocabulary,)."""

    @property
    def line_tokens(self) -> int:
        """Tokens in one fact, or in one question with its answer."""
        return self.fact_prefix.size + 3

    def fact(self, key: int, value: int) -> np.ndarray:
        """The ids of a whole fact."""
        return np.asarray([*self.fact_prefix, key, self.equals, value], dtype=np.int64)

    def question(self, key: int) -> np.ndarray:
        """The ids of a question, up to and including ` =`."""
        return np.asarray([*self.recall_prefix, key, self.equals], dtype=np.int64)


@dataclass(frozen=True)
class TrainingRow:
    """One training sequence."""

    tokens: np.ndarray
    """Ids, int64 of shape (length + 1,)."""
    targets: np.ndarray
    """IGNORED, TEXT, ANSWER or REPEATED per token, int64 of shape (length + 1,)."""


@dataclass(frozen=True)
class RecallCase:
    """One evaluation question."""

    prompt: np.ndarray
    """Ids up to and including the question's ` =`, int64 of shape (context,)."""
    answer: np.ndarray
    """The value's ids, int64 of shape (1,)."""
    fact_start: int
    """Index in `prompt` of the first token of the fact that is asked for."""

    @property
    def depth(self) -> float:
        """Where the fact starts, as a fraction of the prompt: 0 is its beginning."""
        return self.fact_start / self.prompt.size


@dataclass(frozen=True)
class _Line:
    position: float
    tokens: np.ndarray
    is_answered: bool


def recall_format(tokenizer: PreTrainedTokenizerBase) -> RecallFormat:
    """The format in `tokenizer`'s ids.

    Raises:
        ValueError: ` =` or most words take more than one token, or the prefixes differ in length.
    """
    fact_prefix = np.asarray(tokenizer.encode("\n# fact:", add_special_tokens=False))
    recall_prefix = np.asarray(tokenizer.encode("\n# recall:", add_special_tokens=False))
    if fact_prefix.size != recall_prefix.size:
        message = "the fact and the question prefix take different numbers of tokens"
        raise ValueError(message)
    texts = (tokenizer.decode([index]) for index in range(len(tokenizer)))
    return RecallFormat(
        fact_prefix=fact_prefix,
        recall_prefix=recall_prefix,
        equals=_single_token(tokenizer, " ="),
        words=_words(tokenizer),
        line_starts=np.asarray([text.startswith("\n") for text in texts]),
    )


def _words(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """The ids of the words that are one token; a general tokenizer cuts some of them."""
    cut = [tokenizer.encode(f" {word}", add_special_tokens=False) for word in WORDS]
    words = [ids[0] for ids in cut if len(ids) == 1]
    if len(words) < LEAST_WORDS:
        message = (
            f"{len(words)} of {len(WORDS)} words take 1 token, a recall task needs {LEAST_WORDS}"
        )
        raise ValueError(message)
    return np.asarray(words)


def _single_token(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    ids = tokenizer.encode(text, add_special_tokens=False)
    if len(ids) != 1:
        message = f"{text!r} takes {len(ids)} tokens, a recall task needs 1"
        raise ValueError(message)
    single: int = ids[0]
    return single


def training_row(
    rng: np.random.Generator,
    form: RecallFormat,
    code: np.ndarray,
    length: int,
    facts: int,
    questions: int,
) -> TrainingRow:
    """A row of `length` + 1 tokens: a random stretch of `code` with facts and questions in it.

    Each question comes after its fact. No fact is asked for twice while others are left unasked.
    Facts and the questions' own words are IGNORED as targets: they cannot be predicted.

    Raises:
        ValueError: the lines do not fit in `length` + 1, there are more facts than pairs of
            words, or questions without a fact.
    """
    filler = length + 1 - (facts + questions) * form.line_tokens
    if filler < 0 or 2 * facts > form.words.size or (questions and not facts):
        message = f"{facts} facts and {questions} questions do not fit in {length} tokens"
        raise ValueError(message)
    stretch = _stretch(rng, code, filler)
    lines = _random_lines(rng, form, facts, questions)
    tokens, targets, _ = _compose(form, stretch, lines)
    return TrainingRow(tokens, targets)


def repeated_row(rng: np.random.Generator, code: np.ndarray, length: int) -> TrainingRow:
    """A row of `length` + 1 tokens: a random stretch of `code`, and the same once more."""
    half = (length + 2) // 2
    stretch = _stretch(rng, code, half)
    tokens = np.concatenate([stretch, stretch])[: length + 1]
    return TrainingRow(tokens, np.where(np.arange(length + 1) < half, TEXT, REPEATED))


def distant_repeat_row(
    rng: np.random.Generator, form: RecallFormat, code: np.ndarray, length: int
) -> TrainingRow:
    """A row of `length` + 1 tokens: a stretch of code and facts, other code, the stretch again.

    The copies' distance is random, so that only their content tells where the first one is.
    """
    size = int(rng.integers((length + 1) // 4, (length + 1) // 2 + 1))
    most = size // form.line_tokens
    facts = int(rng.integers(most // 2, most + 1))
    lines = _random_lines(rng, form, facts, 0)
    stretch, targets, _ = _compose(
        form, _stretch(rng, code, size - facts * form.line_tokens), lines
    )
    gap = _stretch(rng, code, length + 1 - 2 * size)
    split = int(rng.integers(gap.size + 1))
    parts = [stretch, gap[:split], stretch, gap[split:]]
    worth = [
        targets,
        np.full(split, TEXT),
        np.full(size, REPEATED),
        np.full(gap.size - split, TEXT),
    ]
    return TrainingRow(np.concatenate(parts), np.concatenate(worth))


def recall_case(
    rng: np.random.Generator,
    form: RecallFormat,
    code: np.ndarray,
    context: int,
    facts: int = 1,
) -> RecallCase:
    """A prompt of exactly `context` tokens over a random stretch of `code`, question last.

    Each of the `facts` lies at its own uniform random depth; the one asked for is random as well.

    Raises:
        ValueError: `context` is too small for the lines.
    """
    question_tokens = form.line_tokens - 1
    filler = context - facts * form.line_tokens - question_tokens
    if filler < 0:
        message = f"{facts} facts do not fit in {context} tokens"
        raise ValueError(message)
    stretch = _stretch(rng, code, filler)
    words = rng.choice(form.words, size=2 * facts, replace=False).reshape(facts, 2)
    lines = [_Line(rng.random(), form.fact(key, value), is_answered=False) for key, value in words]
    haystack, _, starts = _compose(form, stretch, lines)
    asked = int(rng.integers(facts))
    key, value = words[asked]
    return RecallCase(
        prompt=np.concatenate([haystack, form.question(key)]),
        answer=np.asarray([value], dtype=np.int64),
        fact_start=starts[asked],
    )


def absent_case(
    rng: np.random.Generator, form: RecallFormat, code: np.ndarray, context: int
) -> RecallCase:
    """A case of one fact that asks for a key which is nowhere in the prompt.

    No answer is right. `answer` is the value of the fact that is there: what a model says
    that copies it without reading which key was asked for.

    Raises:
        ValueError: `context` is too small for the lines.
    """
    case = recall_case(rng, form, code, context)
    fact = case.prompt[case.fact_start : case.fact_start + form.line_tokens]
    others = np.setdiff1d(form.words, case.prompt)
    others = others[others != fact[-1]]
    question = form.question(int(rng.choice(others)))
    prompt = np.concatenate([case.prompt[: -question.size], question])
    return RecallCase(prompt, case.answer, case.fact_start)


def _stretch(rng: np.random.Generator, code: np.ndarray, size: int) -> np.ndarray:
    """`size` consecutive ids of `code` from a random start, around its end where needed."""
    start = int(rng.integers(code.size))
    return np.take(code, np.arange(start, start + size), mode="wrap").astype(np.int64)


def _random_lines(
    rng: np.random.Generator, form: RecallFormat, facts: int, questions: int
) -> list[_Line]:
    words = rng.choice(form.words, size=2 * facts, replace=False).reshape(facts, 2)
    positions = rng.random(facts)
    lines = [
        _Line(position, form.fact(key, value), is_answered=False)
        for position, (key, value) in zip(positions, words, strict=True)
    ]
    order = rng.permutation(facts)
    for number in range(questions):
        asked = order[number % facts]
        at_end = rng.random() < END_QUESTION_PROBABILITY
        # Past 1 the line is after all code and facts; the draw puts questions in random order.
        position = 1.0 + rng.random() if at_end else rng.uniform(positions[asked], 1.0)
        key, value = words[asked]
        ids = np.append(form.question(key), value)
        lines.append(_Line(position, ids, is_answered=True))
    return lines


def _compose(
    form: RecallFormat, stretch: np.ndarray, lines: list[_Line]
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Tokens, targets, and where each of `lines` starts: `stretch` with the lines inserted.

    A line goes in front of the first line start of `stretch` at or after its position, or at the
    end.
    """
    boundaries = np.append(np.flatnonzero(form.line_starts[stretch]), stretch.size)
    tokens: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    starts = [0] * len(lines)
    taken = length = 0
    for index in sorted(range(len(lines)), key=lambda candidate: lines[candidate].position):
        line = lines[index]
        wanted = min(int(line.position * stretch.size), stretch.size)
        boundary = int(boundaries[np.searchsorted(boundaries, wanted)])
        worth = np.full(line.tokens.size, IGNORED)
        worth[-1] = ANSWER if line.is_answered else IGNORED
        tokens += [stretch[taken:boundary], line.tokens]
        targets += [np.full(boundary - taken, TEXT), worth]
        length += boundary - taken
        starts[index] = length
        length += line.tokens.size
        taken = boundary
    tokens.append(stretch[taken:])
    targets.append(np.full(stretch.size - taken, TEXT))
    return np.concatenate(tokens), np.concatenate(targets), starts

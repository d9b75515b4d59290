"""What is trained and in which order: model shapes, learning rates, and the curriculum.

Recall over a distance is learned only where many facts and questions stand close together, and
carries over to long, sparse contexts once it is there. So stages go from short and dense to long
and sparse, with recall in each from the first step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

FEW_WORDS = 32


@dataclass(frozen=True)
class Shape:
    """The size of a Qwen3 verifier."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int = 64
    vocabulary: int = 4096
    positions: int = 2048
    rope_theta: float = 10_000.0


@dataclass(frozen=True)
class Stage:
    """A stretch of training with one mixture of rows."""

    steps: int
    lengths: tuple[int, ...]
    """Row lengths in tokens; each step draws one and fills its token count with such rows."""
    length_weights: tuple[float, ...]
    """How often each length is drawn; adds up to 1."""
    dense_share: float
    """The share of rows that consist of 30 to 100 % facts and questions."""
    plain_share: float
    """The share of rows that are code alone; the rest holds a few facts."""
    answer_weight: float
    """The mean loss of answers counts this much beside that of text."""
    repeat_share: float = 0.0
    """The share of rows that are a stretch of code twice over: what recall needs, at each token."""
    are_repeats_distant: bool = False
    """Whether repeated stretches hold facts and stand apart, at a random distance."""
    decays: bool = False
    """Whether the learning rates fall linearly from their peaks to zero over this stage."""
    few_words_share: float = 0.0
    """The share of dense rows whose keys and values come from the first FEW_WORDS words only."""


@dataclass(frozen=True)
class Preset:
    """Everything that decides a training run besides the seed and the text."""

    shape: Shape
    stages: tuple[Stage, ...]
    """In order. The last one decays."""
    tokens_per_step: int
    matrix_rate: float
    """Peak learning rate of Muon, for the hidden matrices."""
    vector_rate: float
    """Peak learning rate of AdamW, for the embedding and the norms."""
    warmup_steps: int = 30

    @property
    def steps(self) -> int:
        """Optimizer steps in all."""
        return sum(stage.steps for stage in self.stages)

    def place(self, step: int) -> tuple[Stage, int]:
        """The stage that `step` (from 0) falls in, and the steps done in it."""
        for stage in self.stages[:-1]:
            if step < stage.steps:
                return stage, step
            step -= stage.steps
        return self.stages[-1], step

    def rate_factor(self, step: int) -> float:
        """The learning rates' factor at `step`: linear warm-up, 1, linear decay in some stages."""
        stage, done = self.place(step)
        remaining = (stage.steps - done) / stage.steps if stage.decays else 1.0
        return min(1.0, (step + 1) / self.warmup_steps, remaining)

    def shortened(self, steps: int) -> Preset:
        """The preset, ending at `steps`: earlier stages are cut, the last keeps its length.

        Raises:
            ValueError: `steps` leaves no room for the last stage.
        """
        room = steps - self.stages[-1].steps
        if room < 0:
            message = f"the last stage alone takes {self.stages[-1].steps} steps, not {steps}"
            raise ValueError(message)
        kept = []
        for stage in self.stages[:-1]:
            kept.append(replace(stage, steps=min(stage.steps, room)))
            room -= kept[-1].steps
        return replace(self, stages=(*kept, self.stages[-1]))


@dataclass(frozen=True)
class RowPlan:
    """How many lines of each sort a row of some length gets."""

    facts: int
    questions: int
    is_repeated: bool = False
    word_count: int = 256
    """Keys and values come from the first so many words."""


def plan_row(rng: np.random.Generator, stage: Stage, length: int, line_tokens: int) -> RowPlan:
    """The lines of one row of `length` tokens in `stage`."""
    kind = rng.random()
    if kind < stage.plain_share:
        return RowPlan(0, 0)
    if kind < stage.plain_share + stage.dense_share:
        fill = 0.3 ** rng.random()
        lines = max(2, int(fill * length / line_tokens))
        # At most 120 facts: they take two words each, of 256.
        facts = min(120, max(1, int(lines * rng.uniform(0.25, 0.5))))
        if stage.few_words_share and rng.random() < stage.few_words_share:
            return RowPlan(min(facts, FEW_WORDS // 2), lines - facts, word_count=FEW_WORDS)
        return RowPlan(facts, lines - facts)
    if kind < stage.plain_share + stage.dense_share + stage.repeat_share:
        return RowPlan(0, 0, is_repeated=True)
    facts = int(rng.integers(1, max(1, min(16, length // 32)) + 1))
    return RowPlan(facts, int(rng.integers((facts + 1) // 2, facts + 1)))


_CURRICULUM = (
    Stage(300, (64, 128), (0.4, 0.6), dense_share=0.75, plain_share=0.1, answer_weight=2.0),
    Stage(100, (128, 256), (0.3, 0.7), dense_share=0.6, plain_share=0.1, answer_weight=1.0),
    Stage(
        300,
        (64, 128, 256),
        (0.3, 0.4, 0.3),
        dense_share=0.35,
        plain_share=0.1,
        repeat_share=0.4,
        answer_weight=1.0,
    ),
    Stage(
        350,
        (64, 128, 256, 512),
        (0.15, 0.25, 0.3, 0.3),
        dense_share=0.4,
        plain_share=0.1,
        repeat_share=0.3,
        answer_weight=1.0,
    ),
    Stage(
        250,
        (256, 512, 1024),
        (0.3, 0.3, 0.4),
        dense_share=0.25,
        plain_share=0.2,
        repeat_share=0.15,
        answer_weight=1.0,
    ),
    Stage(
        200,
        (64, 128, 256),
        (0.5, 0.35, 0.15),
        dense_share=0.6,
        plain_share=0.1,
        repeat_share=0.2,
        answer_weight=3.0,
        few_words_share=0.5,
    ),
    Stage(
        180,
        (64, 128, 256),
        (0.3, 0.4, 0.3),
        dense_share=0.3,
        plain_share=0.1,
        repeat_share=0.5,
        are_repeats_distant=True,
        answer_weight=2.0,
        few_words_share=0.3,
    ),
    Stage(
        360,
        (128, 256, 512, 1024, 2048),
        (0.25, 0.25, 0.2, 0.2, 0.1),
        dense_share=0.2,
        plain_share=0.25,
        repeat_share=0.2,
        are_repeats_distant=True,
        answer_weight=1.0,
        decays=True,
    ),
    Stage(
        400,
        (256, 512, 1024),
        (0.6, 0.3, 0.1),
        dense_share=0.05,
        plain_share=0.6,
        answer_weight=0.5,
        decays=True,
    ),
)

TINY = Preset(
    shape=Shape(hidden=256, intermediate=640, layers=4, heads=4, kv_heads=2),
    stages=_CURRICULUM,
    tokens_per_step=4096,
    matrix_rate=0.02,
    vector_rate=4e-3,
)

SMALL = Preset(
    shape=Shape(hidden=512, intermediate=1536, layers=9, heads=8, kv_heads=4),
    stages=tuple(replace(stage, steps=3 * stage.steps) for stage in _CURRICULUM),
    tokens_per_step=65_536,
    matrix_rate=0.02,
    vector_rate=2e-3,
    warmup_steps=100,
)

TEST = Preset(
    shape=Shape(
        hidden=32, intermediate=64, layers=2, heads=2, kv_heads=1, head_dim=16, vocabulary=1024
    ),
    stages=(
        Stage(4, (64,), (1.0,), dense_share=0.7, plain_share=0.1, answer_weight=1.0),
        Stage(
            4,
            (64, 128),
            (0.5, 0.5),
            dense_share=0.3,
            plain_share=0.2,
            answer_weight=0.5,
            decays=True,
        ),
    ),
    tokens_per_step=512,
    matrix_rate=0.02,
    vector_rate=4e-3,
    warmup_steps=2,
)

PRESETS: dict[str, Preset] = {"tiny": TINY, "small": SMALL, "test": TEST}
"""By name: `tiny` (4 M parameters, a CPU), `small` (about 30 M, a GPU), `test` (seconds)."""

"""What `fleet fit` answers: the memory, the ways with their bytes, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.fleet.placement.fit import (
    FitQuestion,
    MemoryOnPaper,
    Verdict,
    Way,
    verdict,
    with_archives,
)
from kakeya_fleet.node.cli.fleet.fit_options import Asked
from kakeya_fleet.node.config.kv_budget import kv_budget_bytes
from kakeya_fleet.node.planning.kv_ways import Question, ways
from kakeya_fleet.node.planning.plan_wire import DEFAULT_SINK_TOKENS, DEFAULT_WINDOW_TOKENS


@dataclass(frozen=True, slots=True)
class Answer:
    """All that is told. The ways are of `tokens`, with this sink and window."""

    model: ModelOnPaper
    weights: str
    memory: MemoryOnPaper
    is_of_this_machine: bool
    tokens: int
    asked_tokens: int
    sink_tokens: int
    window_tokens: int
    ways: tuple[Way, ...]
    verdict: Verdict


def answer(model: ModelOnPaper, asked: Asked, *, archive_free_bytes: int | None = None) -> Answer:
    """The answer for `model`, which has weights as they are asked for.

    `archive_free_bytes` are those of the archives that there are elsewhere; None for as many as
    it takes.
    """
    memory_bytes = asked.memory_bytes or system_memory.available_bytes()
    memories = {
        weights: MemoryOnPaper(
            memory_bytes=memory_bytes,
            weight_bytes=weight_bytes,
            loading_bytes=model.loading_bytes[weights],
            budget_bytes=kv_budget_bytes(memory_bytes),
            working_bytes=model.working_bytes,
            checking_bytes=model.checking_bytes,
        )
        for weights, weight_bytes in model.weight_bytes.items()
    }
    memory = memories[asked.weights]
    asked_tokens = asked.context_tokens or model.layout.context_length
    tokens = min(asked_tokens, model.layout.context_length)
    sink = DEFAULT_SINK_TOKENS if asked.window.sink_tokens is None else asked.window.sink_tokens
    window = (
        DEFAULT_WINDOW_TOKENS if asked.window.window_tokens is None else asked.window.window_tokens
    )
    found = ways(model, Question(tokens, memory.room_bytes, sink, window))
    if archive_free_bytes is not None:
        found = tuple(with_archives(way, archive_free_bytes) for way in found)
    question = FitQuestion(
        model=model.name,
        asked_tokens=asked_tokens,
        tokens=tokens,
        memory=memory,
        ways=found,
        others=memories,
    )
    return Answer(
        model=model,
        weights=asked.weights,
        memory=memory,
        is_of_this_machine=asked.memory_bytes is None,
        tokens=tokens,
        asked_tokens=asked_tokens,
        sink_tokens=sink,
        window_tokens=window,
        ways=found,
        verdict=verdict(question),
    )

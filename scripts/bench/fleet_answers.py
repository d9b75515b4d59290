"""Answers of a running fleet and of transformers, timed alike, and what a side's answers sum to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from kakeya import AsyncClient, GenerationDone, Speculation
from scripts.bench.intervals import median_interval, summary
from scripts.bench.loop_efficiency import timeline_efficiency
from scripts.bench.machine import percentile


@dataclass(slots=True)
class Measured:
    """One side's figures over all answers."""

    tokens_per_second: list[float] = field(default_factory=list)
    loop_efficiency: list[float] = field(default_factory=list)
    wire_seconds: list[float] = field(default_factory=list)
    wait_seconds: list[float] = field(default_factory=list)
    verify_seconds: list[float] = field(default_factory=list)
    generated: int = 0
    forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    faults: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def add(self, token_count: int, seconds: float, done: GenerationDone | None) -> None:
        """Adds one answer."""
        self.tokens_per_second.append(token_count / seconds)
        self.generated += token_count
        if done is None:
            self.forwards += token_count
            return
        self.forwards += done.speculation.verify_forward_count
        self.drafted += done.speculation.drafted_count
        self.accepted += done.speculation.accepted_count
        self.faults += sum(fault.count for fault in done.speculation.faults)
        reason = done.speculation.drop_reason
        if reason:
            self.dropped[str(reason)] = self.dropped.get(str(reason), 0) + 1
        self.loop_efficiency.append(timeline_efficiency(done))
        for block in done.timeline:
            self.verify_seconds.append(block.verify_seconds)
            if block.drafted_count:
                self.wire_seconds.append(block.wire_seconds)
                self.wait_seconds.append(block.wait_seconds)

    def summary(self) -> dict[str, object]:
        """Medians, intervals and percentiles, for JSON; `dropped` counts answers by reason."""
        figures: dict[str, object] = {
            "tokens_per_second_median": statistics.median(self.tokens_per_second),
            "tokens_per_second_interval_95": list(median_interval(self.tokens_per_second)),
            "tokens_per_forward": self.generated / self.forwards,
            "answers": len(self.tokens_per_second),
            "drafted": self.drafted,
            "accepted": self.accepted,
            "draft_faults": self.faults,
            "dropped": self.dropped,
        }
        if self.loop_efficiency:
            figures["loop_efficiency"] = summary(self.loop_efficiency)
        for name, values in (
            ("wire_seconds", self.wire_seconds),
            ("wait_seconds", self.wait_seconds),
            ("verify_seconds", self.verify_seconds),
        ):
            if values:
                figures[f"{name}_p50"] = statistics.median(values)
                figures[f"{name}_p99"] = percentile(values, 0.99)
        return figures


async def fleet_answer(
    client: AsyncClient,
    model: str,
    prompt: Sequence[int],
    max_tokens: int,
    speculation: Speculation | str,
    *,
    session_options: Mapping[str, object] | None = None,
    temperature: float = 0.0,
    seed: int | None = None,
) -> tuple[tuple[int, ...], float, GenerationDone]:
    """Tokens, seconds of append and generation, and the end.

    `session_options` are further arguments of `create_session`.
    """
    session = await client.create_session(
        model,
        speculation=speculation,  # type: ignore[arg-type]
        **(session_options or {}),  # type: ignore[arg-type]
    )
    async with session:
        began = time.perf_counter()
        await session.append(prompt)
        generation = session.generate(max_tokens, temperature=temperature, seed=seed)
        completion = await generation.collect()
        return completion.token_ids, time.perf_counter() - began, completion.done


def transformers_answer(
    model: torch.nn.Module,
    prompt: Sequence[int],
    max_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    cache: str = "dynamic",
) -> tuple[tuple[int, ...], float]:
    """Tokens and seconds of transformers' own decoding, greedy at temperature 0.

    `cache` is the library's name of a cache: "dynamic", its default, or "static".
    """
    ids = torch.tensor([list(prompt)])
    choice: dict[str, object] = {"do_sample": False}
    if temperature:
        torch.manual_seed(seed)
        choice = {"do_sample": True, "temperature": temperature, "top_k": 0}
    began = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(  # type: ignore[operator]
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            eos_token_id=None,
            cache_implementation=cache,
            **choice,
        )
    seconds = time.perf_counter() - began
    return tuple(out[0, len(prompt) :].tolist()), seconds

"""The same question with the proposer and with the verifier alone, side by side."""

from __future__ import annotations

import dataclasses
import secrets
from dataclasses import dataclass
from typing import Literal

from kakeya import AsyncClient, Plan, RejectionReason, Speculation, SpeculationChoice
from kakeya_fleet.node.cli.answers.answer import Answer, Question, answer
from kakeya_fleet.node.cli.asking.tokenizer import TextTokenizer
from kakeya_fleet.node.cli.terminal.statistics_text import tokens_per_second

# A pair that the planner would not choose can still be compared.
_WILLING = {RejectionReason.SLOWER_THAN_ALONE, RejectionReason.NOT_MEASURED}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both answers to one question."""

    prompt: str
    drafted: Answer
    alone: Answer

    @property
    def identical(self) -> bool:
        """Whether both streams hold the same ids in the same order."""
        return self.drafted.token_ids == self.alone.token_ids

    @property
    def first_difference(self) -> int | None:
        """Index of the first token in which the streams differ; None when they are the same."""
        if self.identical:
            return None
        pairs = zip(self.drafted.token_ids, self.alone.token_ids, strict=False)
        shorter = min(len(self.drafted.token_ids), len(self.alone.token_ids))
        return next((index for index, (one, other) in enumerate(pairs) if one != other), shorter)

    @property
    def drafted_count(self) -> int:
        """Drafted tokens that the verifier looked at."""
        return self.drafted.done.speculation.drafted_count

    @property
    def speeds(self) -> tuple[float, float]:
        """Tokens a second with the proposer and alone."""
        return tokens_per_second(self.drafted.done), tokens_per_second(self.alone.done)


async def choose_proposer(client: AsyncClient, question: Question) -> SpeculationChoice:
    """The planner's choice; where it would decode alone, the proposer it thought too slow."""
    plan = await client.fleet.plan(
        question.model,
        kv_strategy=question.kv.strategy,
        sink_tokens=question.kv.sink_tokens or 0,
        window_tokens=question.kv.window_tokens or 0,
    )
    if plan.proposer is not None:
        return Speculation(plan.proposer.model_id, plan.proposer.node_id)
    return _unchosen(plan) or "auto"


def _unchosen(plan: Plan) -> Speculation | None:
    rejected = [
        rejection.proposer
        for rejection in plan.rejections
        if rejection.proposer is not None
        and rejection.reason in _WILLING
        and rejection.verifier.node_id == plan.verifier.node_id
    ]
    return Speculation(rejected[0].model_id, rejected[0].node_id) if rejected else None


async def compare(
    client: AsyncClient,
    question: Question,
    tokenizer: TextTokenizer,
    choice: SpeculationChoice,
    *,
    alone_first: bool = False,
) -> Comparison:
    """Asks twice, once each way; a sampled question gets the same seed both times."""
    question = _seeded(question)
    order: list[SpeculationChoice | Literal["off"]] = [choice, "off"]
    if alone_first:
        order.reverse()
    answers: list[Answer] = []
    for each in order:
        answers.append(await answer(client, question, tokenizer, each))
        question = _kept_alike(question, answers[-1].plan)
    if alone_first:
        answers.reverse()
    return Comparison(question.prompt, drafted=answers[0], alone=answers[1])


def _kept_alike(question: Question, plan: Plan) -> Question:
    """The question with the K/V strategy that the node chose: streams of two would differ."""
    if plan.kv_strategy is None:
        return question
    kv = dataclasses.replace(question.kv, strategy=plan.kv_strategy.value)
    return dataclasses.replace(question, kv=kv)


def _seeded(question: Question) -> Question:
    sampling = question.sampling
    if sampling.temperature == 0 or sampling.seed is not None:
        return question
    seeded = dataclasses.replace(sampling, seed=1 + secrets.randbelow(2**63))
    return dataclasses.replace(question, sampling=seeded)

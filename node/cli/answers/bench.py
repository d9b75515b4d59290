"""`fleet bench`: speed with and without the proposer, rounds interleaved."""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_proposers
from kakeya_fleet.node.cli.asking.kv_options import kv_options
from kakeya_fleet.node.cli.asking.options import (
    json_option,
    node_option,
    tokenizer_option,
    verifier_option,
)
from kakeya_fleet.node.cli.asking.sampling_options import max_tokens_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kakeya import AsyncClient, Plan, SpeculationChoice
    from kakeya_fleet.node.cli.answers.comparison import Comparison
    from kakeya_fleet.node.cli.asking.kv_options import KvChoice
    from kakeya_fleet.node.cli.asking.tokenizer import TextTokenizer

EXAMPLE = """\b
Example:
  fleet bench --verifier tiny
  fleet bench --rounds 5 --max-tokens 256 --json
  fleet bench --kv restored --window 64 --max-tokens 256
"""


@click.command("bench", epilog=EXAMPLE)
@verifier_option(required=False)
@click.option(
    "--proposer",
    shell_complete=complete_proposers,
    metavar="MODEL[@NODE]",
    help="Who drafts. Default: the planner's choice.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Rounds over all prompts, after one that is not counted.",
)
@max_tokens_option(128)
@kv_options
@tokenizer_option
@node_option
@json_option
def command(
    verifier: str | None,
    proposer: str | None,
    rounds: int,
    max_tokens: int,
    tokenizer: str | None,
    node: str | None,
    *,
    kv: KvChoice,
    as_json: bool,
) -> int:
    """Measure the fleet with and without the proposer.

    Every prompt is answered both ways in every round, in turns, so that a busy
    machine slows both. Greedy; medians over the rounds.
    """
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.asking.models import find_proposer, verifier_model
    from kakeya_fleet.node.cli.asking.tokenizer import tokenizer_of

    async def run(client: AsyncClient) -> int:
        model = await verifier_model(client, verifier)
        text_tokenizer = await tokenizer_of(client, model, verifier or model, tokenizer)
        choice = None if proposer is None else await find_proposer(client, proposer)
        asked = _Asked(model, rounds, max_tokens, kv)
        by_prompt = await _measure(client, asked, text_tokenizer, choice)
        _print(by_prompt, asked, as_json=as_json)
        same = all(result.identical for results in by_prompt.values() for result in results)
        return ExitCode.OK if same else ExitCode.NEGATIVE

    return ask(node, run)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is measured, and how often."""

    model: str
    rounds: int
    max_tokens: int
    kv: KvChoice


async def _measure(
    client: AsyncClient,
    asked: _Asked,
    text_tokenizer: TextTokenizer,
    choice: SpeculationChoice | None,
) -> dict[str, list[Comparison]]:
    from kakeya_fleet.node.cli.answers.answer import Question
    from kakeya_fleet.node.cli.answers.comparison import choose_proposer, compare
    from kakeya_fleet.node.cli.asking.prompts import CODE_PROMPTS
    from kakeya_fleet.node.cli.terminal.output import note

    results: dict[str, list[Comparison]] = {prompt: [] for prompt in CODE_PROMPTS}
    for turn in range(asked.rounds + 1):
        for number, prompt in enumerate(CODE_PROMPTS):
            question = Question(
                model=asked.model,
                prompt=prompt,
                max_tokens=asked.max_tokens,
                kv=asked.kv,
                stop_at_eos=False,
            )
            picked = choice or await choose_proposer(client, question)
            if number == 0:
                note(f"round {turn} of {asked.rounds}" if turn else "warming up")
            result = await compare(
                client, question, text_tokenizer, picked, alone_first=turn % 2 == 1
            )
            if turn:
                results[prompt].append(result)
    return results


def _print(by_prompt: Mapping[str, Sequence[Comparison]], asked: _Asked, *, as_json: bool) -> None:
    from kakeya_fleet.node.cli.asking.prompts import shown
    from kakeya_fleet.node.cli.fleet.plan_text import pair_text
    from kakeya_fleet.node.cli.terminal.output import fitted, print_table, say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import ratio_text, speed_text
    from kakeya_fleet.node.cli.terminal.tables import Column

    lines = [_facts(prompt, results) for prompt, results in by_prompt.items()]
    overall = _facts("", [result for results in by_prompt.values() for result in results])
    last = list(by_prompt.values())[-1][-1]
    if as_json:
        write_json(
            {
                "pair": pair_text(last.drafted.plan),
                "kv_strategy": _strategy(last.drafted.plan, asked),
                "rounds": asked.rounds,
                "max_tokens": asked.max_tokens,
                "prompts": lines,
                "overall": overall,
            }
        )
        return
    turns = f"{asked.rounds} round{'' if asked.rounds == 1 else 's'}"
    head = (
        f"{pair_text(last.drafted.plan)}; K/V {_strategy(last.drafted.plan, asked)}; {turns}, "
        f"{asked.max_tokens} tokens, greedy"
    )
    say(fitted(head, sys.stdout))
    columns = [
        Column("prompt"),
        Column("with proposer", right=True, folds=4),
        Column("alone", right=True, folds=3),
        Column("ratio", right=True, folds=6),
        Column("acceptance length", right=True, folds=2),
        Column("round trip p50 / p99", right=True, folds=1),
        Column("stream", folds=5),
    ]
    rows = [
        [
            shown(str(line["prompt"]), 32) or "median of all",
            speed_text(float(line["tokens_per_second_with_proposer"])),
            speed_text(float(line["tokens_per_second_alone"])),
            ratio_text(
                float(line["tokens_per_second_with_proposer"]),
                float(line["tokens_per_second_alone"]),
            ),
            f"{float(line['acceptance_length']):.2f}",
            _trips_text(line),
            "identical" if line["identical"] else "DIFFERENT",
        ]
        for line in [*lines, overall]
    ]
    print_table(columns, rows, stream=sys.stdout)


def _strategy(plan: Plan, asked: _Asked) -> str | None:
    """How keys and values were kept; from nodes that do not tell, what was asked for."""
    return plan.kv_strategy.value if plan.kv_strategy is not None else asked.kv.strategy


def _facts(prompt: str, results: Sequence[Comparison]) -> dict[str, str | float | bool]:
    drafts = [result.drafted.done.speculation for result in results]
    trips = [numbers for numbers in drafts if numbers.drafted_count]
    with_proposer = statistics.median(result.speeds[0] for result in results)
    alone = statistics.median(result.speeds[1] for result in results)
    return {
        "prompt": prompt,
        "tokens_per_second_with_proposer": with_proposer,
        "tokens_per_second_alone": alone,
        "ratio": with_proposer / alone if alone else 0.0,
        "acceptance_length": statistics.median(each.acceptance_length for each in drafts),
        "drafted_count": sum(each.drafted_count for each in drafts),
        "round_trip_seconds_p50": _median([each.round_trip_seconds_p50 for each in trips]),
        "round_trip_seconds_p99": max((each.round_trip_seconds_p99 for each in trips), default=0.0),
        "identical": all(result.identical for result in results),
    }


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _trips_text(line: Mapping[str, str | float | bool]) -> str:
    from kakeya_fleet.node.cli.terminal.quantities import seconds_text

    if not line["drafted_count"]:
        return "-"
    p50, p99 = float(line["round_trip_seconds_p50"]), float(line["round_trip_seconds_p99"])
    return f"{seconds_text(p50)} / {seconds_text(p99)}"

"""`fleet verify`: the same tokens with and without the proposer, on this very fleet."""

from __future__ import annotations

import statistics
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
from kakeya_fleet.node.cli.asking.sampling_options import max_tokens_option, sampling_options
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.answers.comparison import Comparison
    from kakeya_fleet.node.cli.asking.kv_options import KvChoice
    from kakeya_fleet.node.cli.asking.sampling_options import Sampling

EXAMPLE = """\b
Example:
  printf 'def parse_header(line):\\nimport os\\n' > prompts.txt
  fleet verify --prompts prompts.txt --max-tokens 200
  fleet verify --prompts prompts.jsonl --temperature 0.8 --seed 7 --json

\b
Exit code 1: a stream differs, or no drafted token took part, so that nothing
was proven.
"""


@click.command("verify", epilog=EXAMPLE)
@click.option(
    "--prompts",
    "prompts_file",
    metavar="FILE",
    required=True,
    help='One prompt a line, or JSON lines {"prompt": "..."}; - is stdin.',
)
@verifier_option(required=False)
@click.option(
    "--proposer",
    shell_complete=complete_proposers,
    metavar="MODEL[@NODE]",
    help="Who drafts. Default: the planner's choice.",
)
@max_tokens_option(200)
@sampling_options
@kv_options
@tokenizer_option
@node_option
@json_option
def command(  # noqa: PLR0913 - one parameter an option
    prompts_file: str,
    verifier: str | None,
    proposer: str | None,
    max_tokens: int,
    tokenizer: str | None,
    node: str | None,
    *,
    kv: KvChoice,
    sampling: Sampling,
    as_json: bool,
) -> int:
    """Prove that the proposer changes no token.

    Answers each prompt twice, with drafts and with the verifier alone, and
    compares the streams by the SHA-256 of their ids.
    """
    from kakeya_fleet.node.cli.answers.answer import Question
    from kakeya_fleet.node.cli.answers.comparison import choose_proposer, compare
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.asking.models import find_proposer, verifier_model
    from kakeya_fleet.node.cli.asking.prompts import read_prompts
    from kakeya_fleet.node.cli.asking.tokenizer import tokenizer_of

    prompts = read_prompts(prompts_file)

    async def run(client: AsyncClient) -> int:
        model = await verifier_model(client, verifier)
        text_tokenizer = await tokenizer_of(client, model, verifier or model, tokenizer)
        results: list[Comparison] = []
        for number, prompt in enumerate(prompts, 1):
            question = Question(
                model=model,
                prompt=prompt,
                max_tokens=max_tokens,
                sampling=sampling,
                kv=kv,
            )
            if proposer is None:
                choice = await choose_proposer(client, question)
            else:
                choice = await find_proposer(client, proposer)
            results.append(await compare(client, question, text_tokenizer, choice))
            _print_one(results[-1], number, len(prompts), as_json=as_json)
        return _print_verdict(results, as_json=as_json)

    return ask(node, run)


def _print_one(result: Comparison, number: int, count: int, *, as_json: bool) -> None:
    from kakeya_fleet.node.cli.asking.prompts import shown
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    if as_json:
        write_json({"event": "prompt", **_facts(result)})
        return
    verdict = "identical" if result.identical else "DIFFERENT"
    say(f"{number}/{count}  {verdict}  {shown(result.prompt)}")
    for line in comparison_lines(result):
        say(f"     {line}")
    if result.first_difference is not None:
        say(f"     the streams part at token {result.first_difference}")


def comparison_lines(result: Comparison) -> list[str]:
    """Both streams, a line each: who, hash, speed."""
    from kakeya_fleet.node.cli.fleet.plan_text import pair_text
    from kakeya_fleet.node.cli.terminal.quantities import speed_text
    from kakeya_fleet.node.cli.terminal.statistics_text import fault_lines

    labels = [pair_text(result.drafted.plan), "the verifier alone"]
    width = max(len(label) for label in labels)
    lines = [
        f"{label.ljust(width)}  {each.digest}  {len(each.token_ids)} tokens  {speed_text(speed)}"
        for label, each, speed in zip(
            labels, (result.drafted, result.alone), result.speeds, strict=True
        )
    ]
    return lines + fault_lines(result.drafted.done)


def _facts(result: Comparison) -> dict[str, object]:
    drafted_speed, alone_speed = result.speeds
    return {
        "prompt": result.prompt,
        "identical": result.identical,
        "first_difference": result.first_difference,
        "drafted_count": result.drafted_count,
        "accepted_count": result.drafted.done.speculation.accepted_count,
        "with_proposer": {
            "sha256": result.drafted.digest,
            "token_count": len(result.drafted.token_ids),
            "tokens_per_second": drafted_speed,
        },
        "alone": {
            "sha256": result.alone.digest,
            "token_count": len(result.alone.token_ids),
            "tokens_per_second": alone_speed,
        },
    }


def _print_verdict(results: Sequence[Comparison], *, as_json: bool) -> int:
    from kakeya_fleet.node.cli.terminal.output import say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import ratio_text

    same = sum(result.identical for result in results)
    drafted = sum(result.drafted_count for result in results)
    speeds = [result.speeds for result in results]
    with_proposer = statistics.median(speed for speed, _ in speeds)
    alone = statistics.median(speed for _, speed in speeds)
    proven = same == len(results) and drafted > 0
    if as_json:
        write_json(
            {
                "event": "verdict",
                "proven": proven,
                "identical_count": same,
                "prompt_count": len(results),
                "drafted_count": drafted,
                "tokens_per_second_with_proposer": with_proposer,
                "tokens_per_second_alone": alone,
            }
        )
    elif same < len(results):
        say(f"DIFFERENT: {len(results) - same} of {len(results)} streams; the promise is broken")
    elif not drafted:
        say(
            "nothing was proven: no drafted token took part; start a proposer with "
            "`fleet join --serve proposer=ngram`, or give prompts that repeat themselves"
        )
    else:
        say(
            f"identical: {same} of {len(results)} streams, {drafted} drafted tokens verified, "
            f"median speed {ratio_text(with_proposer, alone)} the verifier alone"
        )
    return ExitCode.OK if proven else ExitCode.NEGATIVE

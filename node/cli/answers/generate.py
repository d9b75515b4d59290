"""`fleet generate`: continues a prompt; the text streams to stdout as it commits."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from kakeya_fleet.fleet.placement.cost_model import MAX_BLOCK_SIZE
from kakeya_fleet.node.cli.asking.form_options import form_options
from kakeya_fleet.node.cli.asking.known_names import complete_speculation
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
    from kakeya import AsyncClient, Plan, SpeculationChoice, Tokens
    from kakeya.text import Detokenizer
    from kakeya_fleet.node.cli.answers.answer import Answer, Question
    from kakeya_fleet.node.cli.asking.form_options import AnswerForm
    from kakeya_fleet.node.cli.asking.kv_options import KvChoice
    from kakeya_fleet.node.cli.asking.sampling_options import Sampling
    from kakeya_fleet.node.cli.asking.tokenizer import TextTokenizer

EXAMPLE = """\b
Example:
  fleet generate --verifier tiny "def parse_header(line):" --max-tokens 200
  fleet generate --verifier tiny --temperature 0.8 --seed 7 --timeline - < prompt.txt
  fleet generate --verifier tiny --log-probabilities 3 --repetition-penalty 1.1 "x = "
  fleet generate --verifier tiny --speculation ngram@mini-2 "import os"
  fleet generate --verifier tiny --json-schema person.json "Who wrote this? "
"""


@dataclass(frozen=True, slots=True)
class View:
    """How the answer is shown."""

    as_json: bool
    timeline: bool


@click.command("generate", epilog=EXAMPLE)
@click.argument("prompt")
@verifier_option(required=False)
@max_tokens_option(200)
@sampling_options
@form_options
@click.option(
    "--speculation",
    shell_complete=complete_speculation,
    default="auto",
    show_default=True,
    metavar="auto|off|MODEL[@NODE]",
    help="Who drafts: the planner's choice, nobody, or the named proposer.",
)
@click.option(
    "--block-size",
    type=click.IntRange(1, MAX_BLOCK_SIZE),
    help="Drafted tokens a block, with a named proposer.",
)
@kv_options
@click.option(
    "--stop-at-eos/--no-stop-at-eos",
    default=True,
    show_default=True,
    help="End the answer where the model ends it.",
)
@click.option(
    "--log-probabilities",
    "top_log_probabilities",
    type=click.IntRange(0, 20),
    metavar="N",
    help="List each token's log-probability, and the N likeliest tokens in its place.",
)
@click.option("--timeline", is_flag=True, help="Draw draft, wire and verify of each block.")
@tokenizer_option
@node_option
@json_option
def command(  # noqa: PLR0913 - one parameter an option
    prompt: str,
    verifier: str | None,
    max_tokens: int,
    speculation: str,
    block_size: int | None,
    top_log_probabilities: int | None,
    tokenizer: str | None,
    node: str | None,
    *,
    kv: KvChoice,
    sampling: Sampling,
    form: AnswerForm,
    stop_at_eos: bool,
    timeline: bool,
    as_json: bool,
) -> int:
    """Continue PROMPT; `-` reads it from stdin.

    Text goes to stdout as the verifier commits it, nothing else does;
    statistics go to stderr.
    """
    if block_size is not None and speculation in ("auto", "off"):
        raise click.UsageError("--block-size needs a named proposer: --speculation MODEL[@NODE]")
    from kakeya_fleet.node.cli.answers.answer import Question
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.asking.models import verifier_model
    from kakeya_fleet.node.cli.asking.prompts import read_input
    from kakeya_fleet.node.cli.asking.tokenizer import tokenizer_of

    text = read_input() if prompt == "-" else prompt
    view = View(as_json=as_json, timeline=timeline)

    async def run(client: AsyncClient) -> int:
        model = await verifier_model(client, verifier)
        question = Question(
            model=model,
            prompt=text,
            max_tokens=max_tokens,
            sampling=sampling,
            kv=kv,
            stop_at_eos=stop_at_eos,
            top_log_probabilities=top_log_probabilities,
            form=form,
        )
        text_tokenizer = await tokenizer_of(client, model, verifier or model, tokenizer)
        choice = await _choice(client, speculation, block_size)
        return await _show(client, question, text_tokenizer, choice, view)

    return ask(node, run)


async def _choice(
    client: AsyncClient, speculation: str, block_size: int | None
) -> SpeculationChoice:
    from kakeya import Speculation
    from kakeya_fleet.node.cli.asking.models import find_proposer

    if speculation == "auto":
        return "auto"
    if speculation == "off":
        return "off"
    found = await find_proposer(client, speculation)
    return Speculation(found.proposer_model, found.node_id, block_size or 0)


@dataclass(slots=True)
class Printer:
    """Writes the answer as it comes."""

    stream: Detokenizer
    as_json: bool
    parts: list[str] = field(default_factory=list)

    def take(self, tokens: Tokens) -> None:
        """Writes what these tokens complete."""
        from kakeya_fleet.node.cli.terminal.output import fields_of, write_json

        text = self.stream.push(tokens.token_ids)
        if self.as_json:
            write_json({"event": "tokens", "text": text, **fields_of(tokens)})
        else:
            self.write(text)

    def write(self, text: str) -> None:
        """Writes text on stdout, at once; a terminal gets nothing that steers it."""
        from kakeya_fleet.node.cli.terminal.printable import printable

        self.parts.append(text)
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()


async def _show(
    client: AsyncClient,
    question: Question,
    text_tokenizer: TextTokenizer,
    choice: SpeculationChoice,
    view: View,
) -> int:
    from kakeya_fleet.node.cli.answers.answer import answer
    from kakeya_fleet.node.cli.fleet.plan_text import pair_text
    from kakeya_fleet.node.cli.terminal.output import fields_of, note, write_json
    from kakeya_fleet.node.cli.terminal.status_line import status_line

    printer = Printer(text_tokenizer.stream(), view.as_json)

    def announce(plan: Plan) -> None:
        if view.as_json:
            write_json({"event": "plan", **fields_of(plan)})
        else:
            note(pair_text(plan))

    result = await answer(
        client,
        question,
        text_tokenizer,
        choice,
        on_plan=announce,
        on_tokens=printer.take,
        line=None if view.as_json else status_line(),
    )
    if view.as_json:
        write_json(
            {
                "event": "done",
                "text": text_tokenizer.decode(result.token_ids),
                "sha256": result.digest,
                **fields_of(result.done),
            }
        )
        return ExitCode.OK
    printer.write(printer.stream.flush())
    _end_line(printer)
    _note_statistics(result, text_tokenizer, view)
    return ExitCode.OK


def _end_line(printer: Printer) -> None:
    """Statistics begin on a line of their own, where text and statistics share a screen too."""
    if not "".join(printer.parts).endswith("\n"):
        sys.stderr.write("\n")


def _note_statistics(result: Answer, text_tokenizer: TextTokenizer, view: View) -> None:
    from kakeya_fleet.node.cli.answers.log_probability_text import (
        log_probability_table,
        perplexity_line,
    )
    from kakeya_fleet.node.cli.terminal.output import brush_for, note, print_table, screen_size
    from kakeya_fleet.node.cli.terminal.statistics_text import statistics_lines
    from kakeya_fleet.node.cli.terminal.timeline import bar_width, draw_timeline

    if result.log_probabilities:
        columns, rows = log_probability_table(
            result.token_ids, result.log_probabilities, result.alternatives, text_tokenizer.decode
        )
        print_table(columns, rows, stream=sys.stderr)
        note(perplexity_line(result.log_probabilities))
    for line in statistics_lines(result.done, result.plan):
        note(line)
    if view.timeline:
        note(
            draw_timeline(
                result.done.timeline,
                result.done.link_changes,
                width=bar_width(screen_size(sys.stderr)[0]),
                brush=brush_for(sys.stderr),
            )
        )

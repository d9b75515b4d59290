"""`fleet fit`: what a context costs in memory, and what of it fits, without loading anything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_models
from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.fleet.fit_options import Shape, asked_options
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
    from kakeya_fleet.engine.contracts.model_shape import ModelShape
    from kakeya_fleet.node.cli.fleet.fit_options import Asked

EXAMPLE = """\b
Example:
  fleet fit smollm2
  fleet fit models/foo.gguf --memory 16GiB
  fleet fit tiny --context 2000 --window 256 --json
  fleet fit --shape layers=32,kv-heads=8,head-dim=128,parameters=7e9 --weights int4 \\
    --memory 24GiB --context 100000
"""


@click.command("fit", epilog=EXAMPLE)
@click.argument("model", required=False, metavar="[MODEL]", shell_complete=complete_models)
@click.option(
    "--shape",
    type=Shape(),
    help="In place of a model: layers=N,kv-heads=N,head-dim=N,parameters=N, and if they are known "
    "positions=N and sliding-window=N.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="auto",
    show_default=True,
    help="Number format of the model, its keys and values. auto: the checkpoint's own; of a shape "
    "bfloat16.",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "torch", "mlx"]),
    default="auto",
    show_default=True,
    help="What would compute the model: mlx on Apple silicon and torch elsewhere.",
)
@asked_options
@json_option
def command(
    model: str | None,
    shape: ModelShape | None,
    dtype: str,
    backend: str,
    *,
    asked: Asked,
    as_json: bool,
) -> int:
    """Say what a model's context costs in memory and what fits, on paper.

    MODEL is what `fleet join --serve verifier=` takes; its headers alone are read, no node is
    asked, and nothing is loaded. For each way of keeping keys and values: their bytes here and
    in an archive, and the longest history that fits beside the weights.

    The exit code is 1 when the asked tokens do not fit.
    """
    from kakeya_fleet.node.cli.fleet.fit_answer import answer
    from kakeya_fleet.node.cli.fleet.fit_text import COLUMNS, fields, notes, rows
    from kakeya_fleet.node.cli.terminal.output import fitted, print_table, say, write_json

    found = _on_paper(model, shape, dtype, backend)
    if asked.context_tokens is None and not found.is_bounded:
        raise click.UsageError("a shape without positions=N needs --context")
    if asked.weights not in found.weight_bytes:
        raise CommandFailed("WEIGHT_FORMAT_UNSUPPORTED", f"{found.refused[asked.weights]}.")
    answered = answer(found, asked)
    if as_json:
        write_json(fields(answered))
    else:
        for sentence in answered.verdict.sentences:
            say(fitted(sentence, sys.stdout))
        say("")
        print_table(COLUMNS, rows(answered), stream=sys.stdout)
        say("")
        for note in notes(answered):
            say(fitted(note, sys.stdout))
    return ExitCode.OK if answered.verdict.fits else ExitCode.NEGATIVE


def _on_paper(
    model: str | None, shape: ModelShape | None, dtype: str, backend: str
) -> ModelOnPaper:
    """What is asked about. Raises `CommandFailed` for a model that cannot be served."""
    if (model is None) == (shape is None):
        raise click.UsageError("name a model, or give its --shape")
    if shape is not None:
        return shape.on_paper(dtype)
    from kakeya_fleet.engine.backends.on_paper import read_on_paper
    from kakeya_fleet.engine.errors import ModelUnusable
    from kakeya_fleet.node.cli.shell.remedies import sentence

    try:
        return read_on_paper(model or "", backend=backend, dtype=dtype)
    except ModelUnusable as error:
        raise CommandFailed(error.reason, sentence(str(error)), metadata=error.metadata) from error

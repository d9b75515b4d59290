"""`fleet fit`: what a model and a context cost in memory, and where they fit; loads nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_models
from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.fleet.fit_options import Shape, asked_options
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
    from kakeya_fleet.engine.contracts.model_shape import ModelShape
    from kakeya_fleet.node.cli.fleet.fit_options import Asked

EXAMPLE = """\b
Example:
  fleet fit smollm2
  fleet fit models/foo.gguf --memory 16GiB
  fleet fit smollm2 models/foo.gguf --fleet
  fleet fit tiny --context 2000 --window 256 --json
  fleet fit --shape layers=32,kv-heads=8,head-dim=128,parameters=7e9 --weights int4 \\
    --memory 24GiB --context 100000
"""


@click.command("fit", epilog=EXAMPLE)
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_models)
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
@click.option(
    "--fleet",
    "of_fleet",
    is_flag=True,
    help="Ask for each machine of the fleet: what is free there now, its back end, and the room of "
    "the archives elsewhere.",
)
@node_option
@asked_options
@json_option
def command(
    models: tuple[str, ...],
    shape: ModelShape | None,
    dtype: str,
    backend: str,
    node: str | None,
    *,
    of_fleet: bool,
    asked: Asked,
    as_json: bool,
) -> int:
    """Say what a model's context costs in memory and what fits, on paper.

    MODEL is what `fleet join --serve verifier=` takes; its headers alone are read, and nothing is
    loaded. No node is asked but with --fleet, which takes several models. For each way of keeping
    keys and values: their bytes here and in an archive, and the longest history that fits beside
    the weights.

    The exit code is 1 when the asked tokens do not fit, with --fleet when one of the models
    fits nowhere.
    """
    if of_fleet:
        return _of_fleet(models, dtype, backend, node, asked=asked, shape=shape, as_json=as_json)
    if node is not None:
        raise click.UsageError("--node is for --fleet: no node is asked otherwise")
    if len(models) > 1:
        raise click.UsageError("several models are for --fleet; name one")
    from kakeya_fleet.node.cli.fleet.fit_answer import answer
    from kakeya_fleet.node.cli.fleet.fit_text import COLUMNS, fields, notes, rows
    from kakeya_fleet.node.cli.fleet.papers import on_paper
    from kakeya_fleet.node.cli.terminal.output import fitted, print_table, say, write_json

    found = on_paper(models[0] if models else None, shape, dtype, backend)
    _check(found, asked)
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


def _check(found: ModelOnPaper, asked: Asked) -> None:
    """Refuses what cannot be answered of a model."""
    from kakeya_fleet.node.cli.fleet.papers import require_weights

    if asked.context_tokens is None and not found.is_bounded:
        raise click.UsageError("a shape without positions=N needs --context")
    require_weights(found, asked.weights)


def _of_fleet(
    models: tuple[str, ...],
    dtype: str,
    backend: str,
    node: str | None,
    *,
    asked: Asked,
    shape: ModelShape | None,
    as_json: bool,
) -> int:
    """Each model, or the shape, on each machine of the fleet."""
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.fit_machines import lines, machine_fields, machine_fits
    from kakeya_fleet.node.cli.fleet.looking import look
    from kakeya_fleet.node.cli.fleet.papers import Papers, on_paper
    from kakeya_fleet.node.cli.terminal.output import fitted, say, write_json

    named: tuple[str | None, ...] = models or (None,)

    # Read before a node is asked: what is wrong with a model is told at once.
    for model in named:
        _check(on_paper(model, shape, dtype, backend), asked)
    picture = ask(node, look)

    fits_everywhere, told = True, []
    for model in named:
        papers = Papers(model, shape, dtype, backend)
        found = machine_fits(papers.of, asked, picture.snapshot().nodes, picture.hosts())
        fits = any(each.answer is not None and each.answer.verdict.fits for each in found)
        fits_everywhere = fits_everywhere and fits
        name = model or "a model of this shape"
        if as_json:
            told.append({"model": name, "fits": fits, "machines": list(map(machine_fields, found))})
            continue
        if len(named) > 1:
            say(f"{name}:")
        for line in lines(name, found):
            say(fitted(line, sys.stdout))
    if as_json:
        write_json({"models": told})
    return ExitCode.OK if fits_everywhere else ExitCode.NEGATIVE

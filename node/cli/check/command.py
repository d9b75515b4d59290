"""`fleet check`: whether this machine computes a model exactly, on a device, and how fast."""

from __future__ import annotations

import sys

import click

from kakeya_fleet.node.cli.asking.known_names import complete_models
from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

EXAMPLE = """\b
Example:
  fleet check tiny
  fleet check smollm2 --device cuda
  fleet check models/foo.gguf --weights int8 --json

\b
Exit code 1: it loads, and is not exact here.
"""


@click.command("check", epilog=EXAMPLE)
@click.argument("model", metavar="MODEL", shell_complete=complete_models)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "mps"]),
    default="auto",
    show_default=True,
    help="What computes. auto: Metal with MLX on Apple silicon, the processor elsewhere. The "
    "others are torch's.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16"]),
    default="auto",
    show_default=True,
    help="Number format of the model, its keys and values. auto: the checkpoint's own.",
)
@click.option(
    "--weights",
    type=click.Choice(["auto", "bf16", "int8", "int4"]),
    default="auto",
    show_default=True,
    help="What products take the weights as, as `fleet join` has it.",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "torch", "mlx"]),
    default="auto",
    show_default=True,
    help="What library computes: mlx on Apple silicon and torch elsewhere.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Chooses the histories, the lies and the cuts.",
)
@json_option
def command(
    model: str, device: str, dtype: str, weights: str, backend: str, seed: int, *, as_json: bool
) -> int:
    """Prove that this machine computes MODEL exactly, and measure how fast.

    Loads MODEL in this process as `fleet join --serve verifier=MODEL` would; no node is asked.
    Says what computes it, which forwards give the same bits, whether streams past the window
    are the same with a drafter that lies and with a history in pieces, and tokens a second.
    """
    from kakeya_fleet.engine.errors import BadParameters, ModelUnusable, OutOfKvMemory
    from kakeya_fleet.node.cli.check.check_text import fields, sentences
    from kakeya_fleet.node.cli.check.checking import CheckOptions, check
    from kakeya_fleet.node.cli.shell.remedies import sentence
    from kakeya_fleet.node.cli.terminal.output import fitted, note, say, write_json

    options = CheckOptions(model, backend, device, dtype, weights, seed)
    try:
        checked = check(options, note)
    except (BadParameters, ModelUnusable, OutOfKvMemory) as error:
        raise CommandFailed(error.reason, sentence(str(error)), metadata=error.metadata) from error
    if as_json:
        write_json(fields(checked))
    else:
        for each in sentences(checked):
            say(fitted(each, sys.stdout))
    return ExitCode.OK if checked.holds else ExitCode.NEGATIVE

"""`fleet models`: what was converted on this machine and is kept, and the way to be rid of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kakeya_fleet.engine.models.converted_models import Kept

EXAMPLE = """\b
Example:
  fleet models
  fleet models clear smollm2
  fleet models clear --all
  fleet models --json | jq '.models[].byte_count'
"""


@click.group("models", epilog=EXAMPLE, invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> int:
    """Show the models that were converted from GGUF on this machine, and the room they take.

    A node converts a GGUF file when it first serves it, and keeps the result; it asks nothing
    of a fleet. Models of the hub in its own format lie in the hub's cache, and are not listed.
    """
    from kakeya_fleet.engine.models.converted_models import cache_folder, kept_models
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    if context.invoked_subcommand is not None:
        return ExitCode.OK
    kept = kept_models()
    if as_json:
        write_json({"folder": str(cache_folder()), "models": [_fields(each) for each in kept]})
    elif kept:
        _table(kept)
    else:
        say(f"no model was converted on this machine; they would be kept in {cache_folder()}")
    return ExitCode.OK


@command.command("clear")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@json_option
def clear_command(names: tuple[str, ...], *, everything: bool, as_json: bool) -> int:
    """Remove converted models by their names, or all.

    A node that serves one goes on with what it has in memory, and converts the file again
    when it starts the next time.
    """
    from kakeya_fleet.engine.errors import ModelCacheUnwritable
    from kakeya_fleet.engine.models.converted_models import clear, kept_models
    from kakeya_fleet.node.cli.terminal.output import say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text

    if everything == bool(names):
        raise click.UsageError("name the models, or give --all")
    kept = kept_models()
    asked = kept if everything else _named(kept, names)
    fields = [_fields(each) for each in asked]
    byte_count = sum(each.byte_count for each in asked)
    try:
        busy = [each.model.name for each in asked if not clear(each)]
    except ModelCacheUnwritable as error:
        raise CommandFailed(error.reason, f"{error}.", metadata=error.metadata) from error
    if busy:
        raise CommandFailed(
            "MODEL_NOT_KEPT",
            f"{', '.join(busy)} is being converted at this moment: try again when it is done.",
            metadata={"names": ",".join(busy)},
        )
    if as_json:
        write_json({"cleared": fields, "byte_count": byte_count})
    else:
        say(f"{len(asked)} cleared, {bytes_text(byte_count)}")
    return ExitCode.OK


def _named(kept: Sequence[Kept], names: Sequence[str]) -> list[Kept]:
    """Those with these names. Raises `CommandFailed` for a name that none has."""
    there = sorted({each.model.name for each in kept})
    missing = sorted(set(names) - set(there))
    if missing:
        raise CommandFailed(
            "MODEL_NOT_KEPT",
            f"no converted model is called {', '.join(missing)}; there"
            f" {'is ' + ', '.join(there) if there else 'is none'}.",
            metadata={"names": ",".join(missing)},
        )
    return [each for each in kept if each.model.name in names]


def _fields(kept: Kept) -> dict[str, object]:
    model = kept.model
    return {
        "name": model.name,
        "dtype": model.dtype,
        "byte_count": kept.byte_count,
        "source": model.source,
        "sha256": model.sha256,
        "made_at_unix": model.made_at_unix,
        "folder": str(kept.folder),
    }


def _table(kept: Sequence[Kept]) -> None:
    from kakeya_fleet.node.cli.terminal.output import print_table
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text
    from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

    rows: list[Row] = [
        [
            Cell(each.model.name, "bold"),
            Cell(each.model.dtype),
            Cell(bytes_text(each.byte_count)),
            Cell(each.model.source, "dim"),
        ]
        for each in kept
    ]
    total = bytes_text(sum(each.byte_count for each in kept))
    columns = [Column(name) for name in ("model", "dtype", "on disk", "made of")]
    print_table(columns, rows, stream=sys.stdout, title=f"converted models, {total}")

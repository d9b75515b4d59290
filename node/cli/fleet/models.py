"""`fleet models`: what was converted or pulled and is kept, and the way to be rid of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kakeya import AsyncClient
    from kakeya_fleet.engine.models.converted_models import Kept
    from kakeya_fleet.engine.models.pulled_models import StoredModel

EXAMPLE = """\b
Example:
  fleet models
  fleet models --fleet
  fleet models clear smollm2
  fleet models clear --all
  fleet models --json | jq '.models[].byte_count'
"""


@click.group("models", epilog=EXAMPLE, invoke_without_command=True)
@click.option("--fleet", "of_fleet", is_flag=True, help="What each node of the fleet has pulled.")
@node_option
@json_option
@click.pass_context
def command(context: click.Context, *, of_fleet: bool, node: str | None, as_json: bool) -> int:
    """Show the models that were converted or pulled on this machine, and the room they take.

    A node converts a GGUF file when it first serves it, and keeps the result; `fleet pull` brings
    models from other nodes, and `fleet rm` removes them. Without --fleet nobody is asked. Models of
    the hub in its own format lie in the hub's cache, and are not listed.
    """
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    if of_fleet:
        return _show_fleet(node, as_json=as_json)
    if node is not None and context.get_parameter_source("node") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--node goes with --fleet: without it this machine's are shown")
    return _show_here(as_json=as_json)


def _show_here(*, as_json: bool) -> int:
    from kakeya_fleet.engine.models.converted_models import cache_folder, kept_models
    from kakeya_fleet.engine.models.pulled_models import store_folder, stored_models
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    kept, pulled = kept_models(), stored_models()
    if as_json:
        write_json(
            {
                "folder": str(cache_folder()),
                "models": [_fields(each) for each in kept],
                "pulled_folder": str(store_folder()),
                "pulled": [_pulled_fields(each) for each in pulled],
            }
        )
        return ExitCode.OK
    if kept:
        _table(kept)
    else:
        say(f"no model was converted on this machine; they would be kept in {cache_folder()}")
    if pulled:
        _pulled_table(pulled)
    return ExitCode.OK


def _show_fleet(node: str | None, *, as_json: bool) -> int:
    from kakeya_fleet.node.cli.asking.asked_node import asked_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.fleet.stored_models import COLUMNS, rows, stored_on_all
    from kakeya_fleet.node.cli.terminal.output import fields_of, print_table, say, write_json

    address = asked_address(node)

    async def work(client: AsyncClient) -> int:
        told = await stored_on_all(client, address)
        if as_json:
            nodes = [
                {
                    "node_id": each.node.node_id,
                    "name": each.node.name,
                    "models": None
                    if each.models is None
                    else [fields_of(model) for model in each.models],
                }
                for each in told
            ]
            write_json({"nodes": nodes})
        elif found := rows(told):
            print_table(COLUMNS, found, stream=sys.stdout, title="pulled models")
        else:
            say("no node of the fleet has pulled a model: `fleet pull MODEL --to NODE` does")
        return ExitCode.OK

    return ask(address, work)


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


def _pulled_fields(model: StoredModel) -> dict[str, object]:
    return {
        "model_id": model.manifest.model_id,
        "byte_count": model.byte_count,
        "files_digest": model.manifest.digest,
        "is_whole": model.is_whole,
        "pulled_at_unix": model.pulled_at_unix,
        "source_names": list(model.sources),
        "folder": str(model.folder),
    }


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


def _pulled_table(models: Sequence[StoredModel]) -> None:
    from kakeya_fleet.node.cli.terminal.output import print_table
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text
    from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row

    rows: list[Row] = [
        [
            Cell(each.manifest.model_id, "bold"),
            Cell(bytes_text(each.byte_count) + ("" if each.is_whole else ", in part")),
            Cell(", ".join(each.sources), "dim"),
        ]
        for each in models
    ]
    total = bytes_text(sum(each.byte_count for each in models))
    columns = [Column(name) for name in ("model", "on disk", "from")]
    print_table(columns, rows, stream=sys.stdout, title=f"pulled models, {total}")

"""A click group whose commands are imported when they are called, not when they are listed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is: attribute `command` of `module`; `summary` is its line in the list."""

    module: str
    summary: str


class LazyGroup(click.Group):
    """Lists its commands from a table, in the table's order, and imports the one that is called."""

    def __init__(self, *, commands_by_name: Mapping[str, LazyCommand], **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self._lazy = dict(commands_by_name)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of a first use."""
        return list(self._lazy)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None for an unknown name."""
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return None
        command = importlib.import_module(lazy.module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.module}.command is no click command")
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Names of commands and options, without importing any command."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        return [
            CompletionItem(name, help=lazy.summary)
            for name, lazy in self._lazy.items()
            if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the called command; an unknown name gets the nearest known one as a hint."""
        if args and not args[0].startswith("-") and args[0] not in self._lazy:
            import difflib

            near = difflib.get_close_matches(args[0], self._lazy, n=1)
            path = ctx.command_path
            hint = f"did you mean `{path} {near[0]}`?" if near else f"see `{path} --help`."
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

"""Options of the commands that change what a node serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from kakeya_fleet.node.cli.asking.options import NodeChoice

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def whose_option(name: str, who: str) -> Callable[[Decorated], Decorated]:
    """`name`: which node; `--node` as other commands have it."""

    def decorate(command: Decorated) -> Decorated:
        return click.option(
            name,
            "--node",
            "node",
            type=NodeChoice(),
            envvar="KAKEYA_NODE",
            metavar="NAME|HOST:PORT",
            help=f"{who}, by name or address (KAKEYA_NODE). Default: the one that runs here.",
        )(command)

    return decorate


def on_option(command: Decorated) -> Decorated:
    """`--on`: which node."""
    return whose_option("--on", "Node that does it")(command)


def role_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """`--as`: a role of models."""

    def decorate(command: Decorated) -> Decorated:
        return click.option(
            "--as", "role", type=click.Choice(["verifier", "proposer"]), help=help_text
        )(command)

    return decorate

"""Options of the commands that change what a node serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from kakeya_fleet.node.cli.asking.options import NodeChoice

Decorated = TypeVar("Decorated", bound=Callable[..., object])


def on_option(command: Decorated) -> Decorated:
    """`--on`: which node; `--node` as other commands have it."""
    return click.option(
        "--on",
        "--node",
        "node",
        type=NodeChoice(),
        envvar="KAKEYA_NODE",
        metavar="NAME|HOST:PORT",
        help="Node that does it, by name or address (KAKEYA_NODE). Default: the one that runs "
        "here.",
    )(command)


def role_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """`--as`: a role of models."""

    def decorate(command: Decorated) -> Decorated:
        return click.option(
            "--as", "role", type=click.Choice(["verifier", "proposer"]), help=help_text
        )(command)

    return decorate

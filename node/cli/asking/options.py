"""Options that several commands take, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from kakeya_fleet.node.cli.asking.known_names import (
    addresses,
    complete_nodes,
    complete_verifiers,
    items,
)
from kakeya_fleet.node.config.ports import AUTO_PORT

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Decorated = TypeVar("Decorated", bound=Callable[..., object])


class Address(click.ParamType[str]):
    """HOST:PORT, or [IPV6]:PORT; ports 0 and auto only where one is found."""

    name = "HOST:PORT"

    def __init__(self, *, allow_any_port: bool = False) -> None:
        self._lowest = 0 if allow_any_port else 1

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address as given; refuses one without host or with a port out of range."""
        host, colon, port = value.rpartition(":")
        bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
        if colon and host and not bare_ipv6 and port == AUTO_PORT and not self._lowest:
            return value
        if not colon or not host or bare_ipv6 or not (port.isascii() and port.isdigit()):
            self.fail(
                f"{value!r} is no address: give HOST:PORT, such as 127.0.0.1:7600", param, ctx
            )
        if not self._lowest <= int(port) <= 65535:
            self.fail(f"{port} is no port: give {self._lowest} to 65535", param, ctx)
        return value

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Addresses of the agents on this machine."""
        return items(addresses(), incomplete)


class NodeChoice(click.ParamType[str]):
    """HOST:PORT, or the name of a node; who is called so is asked when the command runs."""

    name = "NAME|HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name or address as given; refuses what is neither."""
        if ":" in value:
            return Address().convert(value, param, ctx)
        if not value.strip():
            self.fail("give the name of a node, or HOST:PORT", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Names of the fleet's nodes, of this machine's where none answers; then addresses."""
        here = addresses()
        by_address = items(here, incomplete) if incomplete else []
        names = by_address or complete_nodes(ctx, param, incomplete)
        names = names or items({name: address for address, name in here.items()}, incomplete)
        return names or items(here, incomplete)


def node_option(command: Decorated) -> Decorated:
    """`--node`: which node is asked."""
    return click.option(
        "--node",
        "node",
        type=NodeChoice(),
        envvar="KAKEYA_NODE",
        metavar="NAME|HOST:PORT",
        help="Node to ask, by address or name (KAKEYA_NODE); of one name, that on this machine. "
        "Default: an agent that runs here.",
    )(command)


def json_option(command: Decorated) -> Decorated:
    """`--json`: one JSON object a line on stdout."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON, one object a line, errors included."
    )(command)


def tokenizer_option(command: Decorated) -> Decorated:
    """`--tokenizer`: where the verifier's tokenizer is read."""
    return click.option(
        "--tokenizer",
        "tokenizer",
        metavar="PATH",
        help="Folder or tokenizer.json to use in place of the one found by the model's name.",
    )(command)


def verifier_option(*, required: bool) -> Callable[[Decorated], Decorated]:
    """`--verifier`: the model that decides every token."""

    def decorate(command: Decorated) -> Decorated:
        return click.option(
            "--verifier",
            "verifier",
            metavar="MODEL",
            required=required,
            shell_complete=complete_verifiers,
            help="Model that decides every token: tiny, a hub id, or a local folder."
            + ("" if required else " Default: the only one that the fleet serves."),
        )(command)

    return decorate

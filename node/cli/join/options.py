"""The options that say what a node is: each a key of the configuration, but `--config`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from kakeya_fleet.node.cli.asking.amount import Amount
from kakeya_fleet.node.cli.asking.duration import Duration
from kakeya_fleet.node.cli.asking.known_names import complete_roles
from kakeya_fleet.node.cli.asking.options import Address

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_OPTIONS = (
    click.option("--name", help="Name for people. Default: the host's name."),
    click.option(
        "--serve",
        shell_complete=complete_roles,
        multiple=True,
        metavar="ROLE=MODEL",
        help="Serve a model or memory: verifier=MODEL, proposer=ngram, proposer=MODEL[@TARGET] or "
        "archive=512MiB. Repeatable.",
    ),
    click.option(
        "--peer",
        "peers",
        multiple=True,
        type=Address(),
        metavar="HOST:PORT",
        help="A node that is known already. Repeatable; without one, multicast DNS finds "
        "the fleet.",
    ),
    click.option(
        "--bind",
        type=Address(allow_any_port=True),
        metavar="HOST:PORT",
        help="Where to answer. Default: 127.0.0.1:auto, the last port again, 7600, or the next "
        "free one. With a --peer on another machine: an address that it reaches, such as "
        "0.0.0.0:auto with --insecure.",
    ),
    click.option(
        "--state",
        metavar="DIR",
        help="Identity and known peers. Default: one directory a name.",
    ),
    click.option("--fleet", "fleet_name", metavar="NAME", help="Fleet to join. Default: default."),
    click.option(
        "--insecure",
        is_flag=True,
        default=None,
        help="Allow an address that other machines reach, without encryption.",
    ),
    click.option("--no-mdns", is_flag=True, help="Neither announce nor look by multicast DNS."),
    click.option(
        "--http",
        "http_bind",
        metavar="HOST:PORT|off",
        help="Where /v1, /health and /metrics answer. Default: 127.0.0.1:auto, the last port "
        "again, 7180, or the next free one.",
    ),
    click.option(
        "--kv-budget-bytes",
        type=Amount(or_none=True),
        help="Bytes of keys and values for all sessions, such as 6GiB. Default: a quarter of the "
        "free memory.",
    ),
    click.option(
        "--unload-after",
        "unload_after_seconds",
        type=Duration(or_never=True),
        metavar="DURATION|never",
        help="Unload a model that had no session for so long, such as 30m. Default: never.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["auto", "float32", "bfloat16"]),
        help="Number format of the models. Default: auto, the checkpoint's own.",
    ),
    click.option(
        "--weights",
        type=click.Choice(["auto", "bf16", "int8", "int4"]),
        help="What a verifier's products take its weights as. Default: auto, as the checkpoint has "
        "them. int8 and int4 are faster and smaller, and a little less exact to the checkpoint.",
    ),
    click.option(
        "--backend",
        type=click.Choice(["auto", "torch", "mlx"]),
        help="What computes. Default: auto, mlx on Apple silicon and torch elsewhere.",
    ),
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda", "mps"]),
        help="What the models are computed on. Default: auto, Metal with MLX on Apple silicon and "
        "the processor elsewhere. `fleet check MODEL --device` proves one.",
    ),
    click.option(
        "--links",
        type=click.Choice(["auto", "grpc", "local", "ring"]),
        help="What carries tensors between nodes. Default: auto, the fastest that was measured.",
    ),
    click.option(
        "--trusted-network",
        is_flag=True,
        default=None,
        help="Nobody listens on this network: rings and groups may carry tensors between hosts in "
        "the clear, in a fleet with an authority too.",
    ),
    click.option(
        "--group",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Serve the verifier by the ranks of this hostfile, together. `fleet hostfile` "
        "writes one.",
    ),
    click.option(
        "--log-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write the log there in place of standard error, and rotate it.",
    ),
    click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="TOML file of keys, docs/configuration.md lists them (KAKEYA_CONFIG).",
    ),
)


def node_options(command: Decorated) -> Decorated:
    """Every option of a node; what was given reads `flags_of`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def flags_of(given: Mapping[str, object]) -> dict[str, object]:
    """The keys of the configuration that were given, by the options' values."""
    flags = {key: value for key, value in given.items() if value not in (None, ())}
    if flags.pop("no_mdns", False):
        flags["mdns"] = False
    return flags

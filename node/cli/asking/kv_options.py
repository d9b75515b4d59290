"""Options that say how the verifier keeps keys and values, and gets back what it evicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.known_names import complete_nodes

if TYPE_CHECKING:
    from kakeya.options import KvOptions

# What a request can say.
MOST_TOKENS = 2**32 - 1


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """The first and the latest positions that stay resident; None leaves them to the node."""

    sink_tokens: int | None = None
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class KvChoice:
    """How keys and values are kept; None and empty strings leave it to the node.

    The restorer's fields are those of the strategy `restored`;
    `restorer_node` is a node's name or the start of its id.
    """

    strategy: str | None = None
    sink_tokens: int | None = None
    window_tokens: int | None = None
    restorer: str | None = None
    restorer_model: str = ""
    restorer_node: str = ""
    quality: str | None = None
    quality_when_short: str | None = None

    def options(self, restorer_node_id: str) -> KvOptions:
        """For sessions and plans; the id is that of `restorer_node`."""
        return {
            "kv_strategy": self.strategy,
            "sink_tokens": self.sink_tokens,
            "window_tokens": self.window_tokens,
            "restorer": self.restorer,
            "restorer_model": self.restorer_model,
            "restorer_node_id": restorer_node_id,
            "kv_quality": self.quality,
            "kv_quality_when_short": self.quality_when_short,
        }


_WINDOW_OPTIONS = (
    click.option(
        "--sink",
        "sink_tokens",
        type=click.IntRange(min=0, max=MOST_TOKENS),
        help="First positions that stay resident. Default: the node's (4).",
    ),
    click.option(
        "--window",
        "window_tokens",
        type=click.IntRange(min=1, max=MOST_TOKENS),
        help="Latest positions that stay resident. Default: the node's (1,024). With full and a "
        "--kv-quality, those that are not packed (64).",
    ),
)
_OPTIONS = (
    click.option(
        "--kv-strategy",
        "--kv",
        "kv_strategy",
        type=click.Choice(["sink_window", "full", "restored"]),
        help="Which keys and values stay resident; restored: evicted ones stay within reach. "
        "Default: restored where a live archive has room and could be replaced, else sink_window.",
    ),
    *_WINDOW_OPTIONS,
    click.option(
        "--restorer",
        type=click.Choice(["archive", "projection", "identity"]),
        help="With --kv restored: who keeps what is evicted. Default: archive, another node, "
        "exact. identity only checks the plumbing.",
    ),
    click.option(
        "--restorer-model",
        metavar="MODEL",
        default="",
        help="With --restorer projection: the drafter whose learned map is used. Default: the "
        "one shipped for the verifier.",
    ),
    click.option(
        "--restorer-node",
        shell_complete=complete_nodes,
        metavar="NODE",
        default="",
        help="Node whose archive is used. Default: the nearest with room.",
    ),
    click.option(
        "--kv-quality",
        type=click.Choice(["lossless", "high", "economy"]),
        help="With --kv restored or full: how exactly keys and values behind the window are kept. "
        "high packs them to less than 5 bits a number, economy to less than 4, or to what the node "
        "has measured to be as exact (fleet codecs). Default: lossless.",
    ),
    click.option(
        "--kv-quality-when-short",
        type=click.Choice(["high", "economy"]),
        help="With --kv full: packs the session so where the verifier is short of memory, and "
        "computes its history once more. Default: never.",
    ),
)


def _collected(command: Callable[..., int]) -> Callable[..., int]:
    """The command, given `kv` in place of an argument an option."""

    @wraps(command)
    def collecting(
        *args: object,
        kv_strategy: str | None,
        sink_tokens: int | None,
        window_tokens: int | None,
        restorer: str | None,
        restorer_model: str,
        restorer_node: str,
        kv_quality: str | None,
        kv_quality_when_short: str | None,
        **kwargs: object,
    ) -> int:
        if kv_strategy != "restored" and (restorer or restorer_model or restorer_node):
            raise click.UsageError("--restorer needs --kv restored")
        if restorer_model and restorer != "projection":
            raise click.UsageError("--restorer-model needs --restorer projection")
        if restorer_node and restorer == "identity":
            raise click.UsageError("--restorer identity is in the verifier's own process")
        if kv_quality and kv_strategy not in ("restored", "full"):
            raise click.UsageError("--kv-quality needs --kv restored or --kv full")
        if kv_quality not in (None, "lossless") and restorer == "projection":
            raise click.UsageError("--kv-quality needs another --restorer than projection")
        if kv_quality_when_short and kv_strategy != "full":
            raise click.UsageError("--kv-quality-when-short needs --kv full")
        kwargs["kv"] = KvChoice(
            kv_strategy,
            sink_tokens,
            window_tokens,
            restorer,
            restorer_model,
            restorer_node,
            kv_quality,
            kv_quality_when_short,
        )
        return command(*args, **kwargs)

    return collecting


def window_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--sink` and `--window` alone, as one `WindowChoice` named `window`."""

    @wraps(command)
    def collecting(
        *args: object, sink_tokens: int | None, window_tokens: int | None, **kwargs: object
    ) -> int:
        return command(*args, window=WindowChoice(sink_tokens, window_tokens), **kwargs)

    decorated: Callable[..., int] = collecting
    for option in reversed(_WINDOW_OPTIONS):
        decorated = option(decorated)
    return decorated


def kv_options(command: Callable[..., int]) -> Callable[..., int]:
    """`--kv-strategy`, `--window`, `--restorer` and more, as one `KvChoice` named `kv`."""
    decorated = _collected(command)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated

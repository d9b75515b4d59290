"""At which port a node answers where nobody names one.

The first node of a machine is where everybody looks for it, further ones are right behind. A node
takes the port again that it had: peers remember it, and who opened it in a firewall does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

AUTO_PORT = "auto"
"""In place of a port's number in an address: one is found."""
GRPC_PORT = 7600
HTTP_PORT = 7180
NEIGHBOURS = 16
"""Ports, the usual one among them, at which nodes of one machine are looked for by hand."""


def ports_to_try(asked: int | None, last: int, usual: int) -> tuple[int, ...]:
    """Ports in the order in which they are tried; 0 stands for any free one.

    One that is named is the only one. `asked` None (`auto`) takes that of the `last` run, 0 for
    none, then the `usual` one and those behind it; 0 takes the last one, or any.
    """
    if asked:
        return (asked,)
    known = [last] if last else []
    if asked is None:
        known += range(usual, usual + NEIGHBOURS)
    return (*dict.fromkeys(known), 0)


def passed_over(tried: Sequence[int], port: int) -> tuple[int, ...]:
    """Those of the ports `tried` that were taken, where `port` was had."""
    return tuple(takewhile(lambda each: each not in (0, port), tried))

"""What a node's service is called, for systemd and launchd."""

from __future__ import annotations

import string

from kakeya_fleet.node.errors import BadConfig

UNIT_PREFIX, UNIT_SUFFIX = "kakeya-", ".service"
LABEL_PREFIX = "dev.kakeya.fleet."
MAX_UNIT_BYTES = 255
# What systemd.unit(5) allows in a name, without the backslash that escapes the rest.
_PLAIN = frozenset(string.ascii_letters + string.digits + ":-_.")


def unit_name(node: str) -> str:
    r"""kakeya-NODE.service, other characters as \xNN of their UTF-8, as systemd-escape does.

    Raises `BadConfig` for a name that becomes too long by that.
    """
    escaped = "".join(
        character if character in _PLAIN else "".join(f"\\x{b:02x}" for b in character.encode())
        for character in node
    )
    name = f"{UNIT_PREFIX}{escaped}{UNIT_SUFFIX}"
    if len(name) > MAX_UNIT_BYTES:
        raise BadConfig(
            f"the name {node!r} is too long for a unit of systemd",
            "give a shorter --name, or one of letters, digits, - and _",
            key="name",
        )
    return name


def label(node: str) -> str:
    """What launchd calls a node's agent."""
    return f"{LABEL_PREFIX}{node}"

"""Tells systemd how the node's start and end go, as sd_notify(3) says.

A unit of `Type=notify` is started once the node is ready, and `systemctl status` shows what
it does meanwhile. A message is one datagram of KEY=VALUE lines to $NOTIFY_SOCKET.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, MutableMapping

import structlog

NOTIFY_SOCKET = "NOTIFY_SOCKET"
SENDING_SECONDS = 0.2
"""The longest that a manager whose queue is full may hold up the event loop."""
ENDED = "ended: "
"""Begins what a node says last, if it says why it ends: one that is killed says nothing."""
GOODBYE_SECONDS = 15.0
"""What a node takes to leave and to stop, besides draining."""

_log = structlog.get_logger(__name__)


class Supervisor:
    """Who started the process and wants to know; tells nobody where nobody does."""

    def __init__(self, address: str = "") -> None:
        """`address` is that of a datagram socket: a path, or @NAME of an abstract one."""
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Supervisor:
        """The one of $NOTIFY_SOCKET, which is taken out: children are not the service."""
        return cls(environment.pop(NOTIFY_SOCKET, ""))

    def take(self, event: Mapping[str, object]) -> None:
        """Tells of an event of `run_agent` what a supervisor has to know of it."""
        if self._address and (lines := message_of(event)):
            self._send("\n".join(lines))

    def failed(self, message: str) -> None:
        """Tells why the node ends, a sentence, for who asks how the service is."""
        if self._address:
            self._send(f"STATUS={ENDED}{' '.join(message.split())}")

    def _send(self, text: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.settimeout(SENDING_SECONDS)
                connection.connect(self._address)
                connection.send(text.encode())
        except OSError as error:
            _log.warning(
                "supervisor_not_told",
                said=text,
                cause=error.strerror or str(error),
                mend="the node goes on; its service manager may not know how it is",
            )


def message_of(event: Mapping[str, object]) -> list[str]:
    """The lines for an event; none for one that says nothing of start and end."""
    match event.get("event"):
        case "joined":
            return [f"STATUS=loads its models; answers at {event.get('address', '')}"]
        case "ready":
            return ["READY=1", f"STATUS=ready at {event.get('address', '')}"]
        case "draining":
            told = event.get("drain_seconds")
            seconds = float(told) if isinstance(told, int | float) else 0.0
            microseconds = int((seconds + GOODBYE_SECONDS) * 1e6)
            return [
                "STOPPING=1",
                f"STATUS=leaves: running answers get {seconds:g} s",
                f"EXTEND_TIMEOUT_USEC={microseconds}",
            ]
    return []

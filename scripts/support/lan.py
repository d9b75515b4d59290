"""Machines of a local network: network namespaces of this one, on a bridge.

Multicast goes over it, as in a home. Everything is gone when the process is, however it ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from scripts.bench.slow_wire import own_namespace

NETWORK = "198.18.1"
"""Of the range for measuring networks (RFC 2544)."""
BRIDGE, DEVICE = "bridge0", "eth0"


def what_is_missing() -> str:
    """Empty when this machine and user can have such a network, else a sentence."""
    pair = ["ip", "link", "add", "here", "type", "veth", "peer", "name", "there"]
    try:
        done = subprocess.run(
            ["unshare", "--net", *pair], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return "unshare and ip cannot be found (util-linux, iproute2)"
    return f"no network of namespaces: {done.stderr.strip()}" if done.returncode else ""


class Lan:
    """So many machines; ends with the context.

    The process moves into a namespace of its own that holds the bridge, and stays there.
    """

    def __init__(self, count: int) -> None:
        """Raises `OSError`; see `what_is_missing`."""
        own_namespace()
        self._ended = ExitStack()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("link", "set", BRIDGE, "up")
        self._machines = [self._plugged(number) for number in range(1, count + 1)]

    def address(self, machine: int) -> str:
        """Of a machine, counted from 0."""
        return f"{NETWORK}.{machine + 1}"

    def on(self, machine: int, words: Sequence[str]) -> list[str]:
        """The command that runs `words` on that machine."""
        return [*_inside(self._machines[machine]), *words]

    def _plugged(self, number: int) -> int:
        """Process id of what holds a machine's namespace."""
        machine = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo there; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._ended.callback(machine.wait)
        for pipe in (machine.stdin, machine.stdout):
            if pipe is not None:
                self._ended.callback(pipe.close)
        if machine.stdout is None or not machine.stdout.readline():
            raise OSError("a machine's namespace could not be made; see what was written above")
        wire = f"wire{number}"
        _ip("link", "add", wire, "type", "veth", "peer", "name", DEVICE, "netns", str(machine.pid))
        _ip("link", "set", wire, "master", BRIDGE, "up")
        inside = _inside(machine.pid)
        _ip("link", "set", "lo", "up", inside=inside)
        _ip("address", "add", f"{NETWORK}.{number}/24", "dev", DEVICE, inside=inside)
        _ip("link", "set", DEVICE, "multicast", "on", "up", inside=inside)
        _ip("route", "add", "default", "via", f"{NETWORK}.254", "dev", DEVICE, inside=inside)
        return machine.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._ended.close()


def _inside(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _ip(*words: str, inside: Sequence[str] = ()) -> None:
    """Raises `OSError` when the kernel has no such thing."""
    done = subprocess.run([*inside, "ip", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)} failed: {done.stderr.strip()}")

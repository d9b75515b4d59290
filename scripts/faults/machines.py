"""Machines of one network, each a network namespace of this one, and faults of the wires.

Namespaces, devices and rules have no names that outlive the processes in them: everything is
gone when this process is, however it ends. This process stands at the switch and reaches every
machine whatever is cut between them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from scripts.bench import network_namespaces
from scripts.bench.slow_wire import own_namespace
from scripts.faults.row import NotRunHere
from scripts.support.child_process import Behind

NETWORK = "198.18.1."
"""Of the range for measuring networks (RFC 2544)."""
SWITCH = 254
"""This process's number in it."""
TOOLS = ("ip", "nft", "nsenter", "unshare")


def what_is_missing() -> str:
    """Empty when this machine and user can have such machines, else a sentence."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} cannot be found (iproute2, nftables, util-linux)"
    return network_namespaces.what_is_missing()


class Machine:
    """One network namespace with an address of the switch's network."""

    def __init__(self, number: int, network: str = NETWORK) -> None:
        self.address = f"{network}{number}"
        # It holds the namespace until its standard input ends.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", "ip link set lo up && echo ready && read _"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._holder.stdout is None or self._holder.stdout.readline() != "ready\n":
            raise NotRunHere("no network namespace can be made")
        here, there = f"wire{number}", "lan0"
        of_it = str(self._holder.pid)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", of_it)
        run("ip", "link", "set", here, "master", "switch", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", there)
        self.run("ip", "link", "set", there, "up")

    def behind(self, words: Sequence[str]) -> list[str]:
        """The command that runs `words` on this machine."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--", *words]

    def run(self, *words: str) -> None:
        """Raises `OSError` when it fails."""
        run(*self.behind(words))

    def loses(self, rules: Iterable[str]) -> None:
        """Takes nftables' `rules` for what comes in, in place of those before; none for none."""
        table = "table inet faults"
        lines = "\n".join(["type filter hook input priority 0;", *rules])
        # It has to be there to be deleted.
        text = f"{table}\ndelete {table}\n{table} {{\nchain input {{\n{lines}\n}}\n}}\n"
        done = subprocess.run(
            self.behind(["nft", "-f", "-"]),
            input=text,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise NotRunHere(f"nftables refuses the rules: {done.stderr.strip()}")

    def close(self) -> None:
        """Lets its namespace go."""
        if self._holder.stdin is not None:
            self._holder.stdin.close()
        self._holder.wait()


class Machines:
    """So many machines behind one switch, which is in this process's namespace."""

    def __init__(self, count: int, *, network: str = NETWORK, first: int = 1) -> None:
        """Addresses are `network` with numbers from `first` on. Raises `NotRunHere`."""
        missing = what_is_missing()
        if missing:
            raise NotRunHere(missing)
        own_namespace()
        run("ip", "link", "add", "switch", "type", "bridge")
        run("ip", "address", "add", f"{network}{SWITCH}/24", "dev", "switch")
        run("ip", "link", "set", "switch", "up")
        numbers = range(first, first + count)
        self.all = tuple(Machine(number, network) for number in numbers)

    def cut(self, from_: Iterable[Machine], to: Iterable[Machine], *, both_ways: bool) -> None:
        """What machines of `from_` send does not come to those of `to`."""
        sides = [tuple(from_), tuple(to)]
        for senders, receivers in (sides, sides[::-1]) if both_ways else (sides,):
            rules = [f"ip saddr {each.address} drop" for each in senders]
            for machine in receivers:
                machine.loses(rules)

    def heal(self) -> None:
        """Nothing is lost any more."""
        for machine in self.all:
            machine.loses([])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for machine in self.all:
            machine.close()


def on(machine_behind: Behind, address: str) -> dict[str, object]:
    """Options of an agent that runs on a machine and binds to its address."""
    return {
        "behind": machine_behind,
        "bind": f"{address}:0",
        "environment": {"KAKEYA_INSECURE": "true"},
    }


def run(*words: str) -> None:
    """Raises `OSError` when it fails, with what it wrote."""
    done = subprocess.run(
        words, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")

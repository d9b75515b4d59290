"""Two network namespaces of this machine, joined by a wire of a stated rate and round trip.

    python -m scripts.bench.network_namespaces

measures what the wires are like. Everything is gone when the process is, however
it ends: namespaces and devices have no names that outlive those who use them.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench.raw_tcp import raw_tcp_peer
from scripts.bench.slow_wire import DEVICE, Line, own_namespace
from scripts.support.child_process import ChildProcess

NEAR, FAR = "198.18.0.1", "198.18.0.2"
"""Of the range for measuring networks (RFC 2544); each is alone in its namespace."""
PINGS = 200
CALIBRATIONS = 10
NEAR_ENOUGH = 0.02
MEASURED_BYTES, TRANSFERS = 64 << 20, 3
CAPABILITIES = 1 << 12 | 1 << 13 | 1 << 21
"""CAP_NET_ADMIN, CAP_NET_RAW (for pings), CAP_SYS_ADMIN; see capabilities(7)."""
_ECHO_REQUEST = 8
_IP_HEADER_BYTES = 20


@dataclass(frozen=True, slots=True)
class Network:
    """A network as asked for; `round_trip_seconds` on an empty line, both kernels included."""

    name: str
    bits_per_second: float
    round_trip_seconds: float


FAST = Network("10 Gbit/s + 0.1 ms", 10e9, 1e-4)
SLOW = Network("1 Gbit/s + 0.3 ms", 1e9, 3e-4)
NETWORKS = (FAST, SLOW)


@dataclass(frozen=True, slots=True)
class Road:
    """A network, the line that stands for it here, and the round trip measured on it."""

    network: Network
    line: Line
    measured_seconds: float

    def summary(self) -> dict[str, object]:
        """For JSON."""
        return {
            "bits_per_second": self.network.bits_per_second,
            "round_trip_seconds": self.network.round_trip_seconds,
            "measured_round_trip_seconds": self.measured_seconds,
        }


def what_is_missing() -> str:
    """Empty when this machine and user can have the two namespaces, else a sentence."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if not Path("/dev/net/tun").exists():
        return "this kernel has no TUN devices: /dev/net/tun is missing"
    missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} cannot be found (iproute2, util-linux)"
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    if int(line.split()[1], 16) & CAPABILITIES != CAPABILITIES:
        return "network namespaces take root (CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN)"
    return ""


def ping(address: str, count: int = PINGS) -> float:
    """Median round trip of an ICMP echo in seconds, answered by the other end's kernel (RFC 792).

    Raises `TimeoutError` when one is lost.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.settimeout(2.0)
        for sequence in range(count):
            body = struct.pack("!BBHHH", _ECHO_REQUEST, 0, 0, os.getpid() & 0xFFFF, sequence)
            packet = body[:2] + struct.pack("!H", internet_checksum(body)) + body[4:]
            began = time.perf_counter()
            raw.sendto(packet, (address, 0))
            while True:
                answer = raw.recv(1024)[_IP_HEADER_BYTES:]
                if answer[0] == 0 and answer[4:8] == packet[4:8]:
                    break
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def internet_checksum(data: bytes) -> int:
    """Of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def device_bytes(device: str = DEVICE) -> tuple[int, int]:
    """Bytes that a device of this process's namespace has sent and received, IP headers included.

    Raises `LookupError` when there is none.
    """
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == device:
            numbers = [int(figure) for figure in figures.split()]
            return numbers[8], numbers[0]
    raise LookupError(f"no device {device}")


class TwoNamespaces(ChildProcess):
    """A namespace of this process's own, and another behind a wire; ends with the context.

    The process moves into a namespace of its own and stays there: it is left
    with nothing but the loopback device and the wire. `pid` is that of the wire, which is
    alone in the other namespace at first.
    """

    def __init__(self) -> None:
        """Raises `PermissionError` or `OSError`; see `what_is_missing`."""
        own_namespace()
        super().__init__("scripts.bench.slow_wire", [NEAR, FAR])
        self.hear()

    def behind(self, words: Sequence[str]) -> list[str]:
        """The command that runs `words` in the other namespace."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *words]

    def calibrated(self, network: Network) -> Road:
        """Finds the delay that makes the wire the network; the wire is it then.

        The way through both kernels takes a part of the round trip already. One
        that is measured longer than asked for is as short as this machine can.
        """
        shortest, longest = 0.0, network.round_trip_seconds / 2
        tried = []
        for _ in range(CALIBRATIONS):
            line = Line(network.bits_per_second, (shortest + longest) / 2)
            self.become(line)
            road = Road(network, line, ping(FAR))
            beyond = road.measured_seconds - network.round_trip_seconds
            tried.append((abs(beyond), road))
            if abs(beyond) <= NEAR_ENOUGH * network.round_trip_seconds:
                break
            if beyond > 0:
                longest = line.delay_seconds
            else:
                shortest = line.delay_seconds
        found = min(tried, key=lambda entry: entry[0])[1]
        self.become(found.line)
        return found

    def become(self, line: Line) -> None:
        """Gives the wire a rate and a delay; `Line()` is as fast as it goes."""
        self.tell(json.dumps(asdict(line)))
        self.hear()


def main() -> None:
    """Prints the round trip and the throughput of each network."""
    lacking = what_is_missing()
    if lacking:
        raise SystemExit(lacking)
    data = memoryview(bytes(MEASURED_BYTES))
    with TwoNamespaces() as namespaces, raw_tcp_peer(FAR, namespaces.behind) as peer:
        for network in NETWORKS:
            road = namespaces.calibrated(network)
            seconds = min(peer.transfer(data) for _ in range(TRANSFERS))
            print(
                f"{network.name}: round trip {road.measured_seconds * 1e3:.3f} ms, "
                f"{8 * MEASURED_BYTES / seconds / 1e9:.2f} Gbit/s of TCP payload"
            )


if __name__ == "__main__":
    main()

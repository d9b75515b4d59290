"""A wire between two network namespaces: a rate, a delay, jitter, and nothing lost.

    python -m scripts.bench.slow_wire 198.18.0.1 198.18.0.2

Makes a device with the first address in the network namespace that it is started
in, and one with the second in a new one of its own, and carries packets between
them as a line of so many bits a second would that is so long: what the kernel's
`netem` does where a kernel has it, for every kernel that has TUN devices. Needs
CAP_NET_ADMIN and CAP_SYS_ADMIN. Reads a `Line` as one line of JSON at a time and
answers each, so that a network can change while connections live; ends, and
everything of it, when its standard input does.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import count

DEVICE = "fleet0"
PREFIX_LENGTH = 30
CLONE_NEWNET = 0x40000000
_PR_SET_TIMERSLACK = 29
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_OFFLOADS = 0x01 | 0x02
"""Checksums, and TCP over IPv4 in packets larger than the MTU, as network cards have them."""
_HEADER = struct.Struct("=BBHHHH")
"""Before each packet: flags, kind of large packet, bytes of header and segment, checksum."""
ETHERNET_BYTES = 38
"""Around each segment: preamble 8, header 14, check sequence 4, gap 12 (IEEE 802.3)."""
MOST_PACKET_BYTES = 1 << 17
MOST_AT_ONCE = 16
"""Packets of one direction before the other has its turn."""
JITTER_SEED = 1


@dataclass(frozen=True, slots=True)
class Line:
    """What a wire is like; `bits_per_second` 0 is no limit, `delay_seconds` is one way.

    Each packet takes up to `jitter_seconds` more, so that it overtakes others; a share
    `repeated` of them arrives twice.
    """

    bits_per_second: float = 0.0
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    repeated: float = 0.0


def ethernet_bytes(packet: bytes) -> int:
    """Bytes that a packet, with its header as above, takes of the line as Ethernet frames."""
    header_bytes: int
    segment_bytes: int
    _, large, header_bytes, segment_bytes, _, _ = _HEADER.unpack_from(packet)
    size = len(packet) - _HEADER.size
    if not large or not segment_bytes:
        return size + ETHERNET_BYTES
    segments = -(-(size - header_bytes) // segment_bytes)
    return size + (segments - 1) * header_bytes + segments * ETHERNET_BYTES


class Direction:
    """Packets on their way in one direction, in order unless the line has jitter."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._free_at = 0.0
        self._latest = 0.0
        self._held: list[tuple[float, int, bytes]] = []
        self._entered = count()
        self._rng = rng or random.Random(JITTER_SEED)

    @property
    def due(self) -> float | None:
        """When the next one arrives; None when the line is empty."""
        return self._held[0][0] if self._held else None

    def enter(self, packet: bytes, line: Line, now: float) -> None:
        """A packet is sent at `now`: behind those before it, and for as long as its bytes take."""
        self._free_at = max(self._free_at, now)
        if line.bits_per_second:
            self._free_at += 8 * ethernet_bytes(packet) / line.bits_per_second
        times = 2 if line.repeated and self._rng.random() < line.repeated else 1
        for _ in range(times):
            late = line.jitter_seconds * self._rng.random() if line.jitter_seconds else 0.0
            arrives = self._free_at + line.delay_seconds + late
            if not line.jitter_seconds:
                # Nor does one overtake another when the line becomes shorter.
                arrives = self._latest = max(arrives, self._latest)
            heappush(self._held, (arrives, next(self._entered), packet))

    def arrived(self, now: float) -> bytes | None:
        """The next packet when it has arrived by `now`."""
        if self._held and self._held[0][0] <= now:
            return heappop(self._held)[2]
        return None


class Wire:
    """The pump: one thread, two devices, standard input."""

    def __init__(self, near: int, far: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._line = Line()
        self._clock = clock
        self._ways = ((near, far, Direction()), (far, near, Direction()))

    def run(self) -> None:
        """Until the standard input ends."""
        commands = sys.stdin.fileno()
        devices = [source for source, _, _ in self._ways]
        while True:
            dues = [way.due for _, _, way in self._ways if way.due is not None]
            wait = max(0.0, min(dues) - self._clock()) if dues else None
            ready, _, _ = select.select([*devices, commands], [], [], wait)
            for source, target, way in self._ways:
                if source in ready:
                    self._take(source, way)
                self._deliver(target, way)
            if commands in ready:
                told = sys.stdin.readline()
                if not told:
                    return
                self._line = Line(**json.loads(told))
                print(json.dumps(asdict(self._line)), flush=True)

    def _take(self, source: int, way: Direction) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                packet = os.read(source, MOST_PACKET_BYTES)
            except BlockingIOError:
                return
            way.enter(packet, self._line, self._clock())

    def _deliver(self, target: int, way: Direction) -> None:
        while (packet := way.arrived(self._clock())) is not None:
            os.write(target, packet)


def own_namespace() -> None:
    """Moves the calling thread, and those that it will start, into a new network namespace.

    It is empty but for a loopback device, and ends with the last process in it.
    Raises `PermissionError` without CAP_SYS_ADMIN, `OSError` where there are none.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")
    _ip("link", "set", "lo", "up")


def _device(address: str) -> int:
    """A TUN device in this namespace; it ends with the file descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), flags))
    fcntl.ioctl(device, _TUNSETOFFLOAD, _OFFLOADS)
    _ip("address", "add", f"{address}/{PREFIX_LENGTH}", "dev", DEVICE)
    _ip("link", "set", DEVICE, "txqueuelen", "10000", "up")
    return device


def _ip(*words: str) -> None:
    """Raises `OSError` when the kernel has no such thing."""
    done = subprocess.run(["ip", *words], check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)} failed; see what it wrote above")


def main() -> None:
    """Makes the devices, says so, and carries."""
    near_address, far_address = sys.argv[1:]
    # A timer of 50 us, the default's slack, would be half a fast network's round trip late.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    near = _device(near_address)
    own_namespace()
    far = _device(far_address)
    print("ready", flush=True)
    Wire(near, far).run()


if __name__ == "__main__":
    main()

"""The wire between two network namespaces: its rate and delay, its figures, and its end."""

import os
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.bench.network_namespaces import internet_checksum, what_is_missing
from scripts.bench.slow_wire import ETHERNET_BYTES, Direction, Line, ethernet_bytes

ROOT = Path(__file__).resolve().parents[2]

WIRED = pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())


def packet(size: int, *, large: int = 0, header_bytes: int = 0, segment_bytes: int = 0) -> bytes:
    return struct.pack("=BBHHHH", 0, large, header_bytes, segment_bytes, 0, 0) + bytes(size)


def test_a_large_packet_takes_the_line_as_long_as_its_frames_would() -> None:
    assert ethernet_bytes(packet(1500)) == 1500 + ETHERNET_BYTES
    # 40 bytes of header, then 2,921 of payload: frames of 1460, 1460 and 1.
    large = packet(40 + 2921, large=1, header_bytes=40, segment_bytes=1460)
    assert ethernet_bytes(large) == 3 * (40 + ETHERNET_BYTES) + 2921
    one = packet(40 + 1460, large=1, header_bytes=40, segment_bytes=1460)
    assert ethernet_bytes(one) == 1500 + ETHERNET_BYTES


def test_packets_wait_for_the_line_and_then_for_its_length() -> None:
    way = Direction()
    line = Line(bits_per_second=8 * (100 + ETHERNET_BYTES), delay_seconds=5.0)
    for _ in range(2):
        way.enter(packet(100), line, now=10.0)
    assert way.due == pytest.approx(16.0)
    assert way.arrived(15.9) is None
    assert way.arrived(16.1) is not None
    # The second one had to wait until the first had left, a second.
    assert way.due == pytest.approx(17.0)
    assert way.arrived(17.1) is not None
    assert way.due is None
    way.enter(packet(100), line, now=100.0)
    assert way.due == pytest.approx(106.0)


def test_a_wire_that_becomes_shorter_changes_no_order() -> None:
    way = Direction()
    way.enter(b"\0" * 10 + b"first", Line(0.0, 9.0), now=0.0)
    way.enter(b"\0" * 10 + b"then", Line(), now=1.0)
    assert way.arrived(5.0) is None
    header = b"\0" * 10
    assert [way.arrived(9.0) for _ in range(2)] == [header + b"first", header + b"then"]


def test_the_checksum_is_that_of_the_standard() -> None:
    # The example of RFC 1071, section 3.
    assert internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0x220D


SCRIPT = """
import signal
import sys
from scripts.bench.network_namespaces import FAR, SLOW, TwoNamespaces, device_bytes
from scripts.bench.raw_tcp import raw_tcp_peer
from scripts.bench.slow_wire import Line

# What runs in the background of a shell without job control inherits that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with TwoNamespaces() as namespaces, raw_tcp_peer(FAR, namespaces.behind) as peer:
    print(namespaces.pid, flush=True)
    if sys.argv[1:] == ["stay"]:
        sys.stdin.read()
    data = memoryview(bytes(4 << 20))
    free = min(peer.transfer(data) for _ in range(3))
    road = namespaces.calibrated(SLOW)
    before = sum(device_bytes())
    slow = min(peer.transfer(data) for _ in range(3))
    crossed = sum(device_bytes()) - before
    namespaces.become(Line(0.0, 0.05))
    far = peer.transfer(data[:1])
    print(free, road.measured_seconds, slow, crossed, far)
"""


def started(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@WIRED
def test_the_wire_has_the_rate_and_the_round_trip_that_it_is_given() -> None:
    process = started()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    wire, figures = out.splitlines()
    free, round_trip, slow, crossed, far = map(float, figures.split())
    assert slow > 8 * (4 << 20) / 1e9 > free
    assert round_trip >= 2e-4
    assert far >= 0.1
    assert 3 * (4 << 20) < crossed < 3.3 * (4 << 20)
    assert not Path("/proc", wire).exists()


@WIRED
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_the_measuring_process_is_ended(number: signal.Signals) -> None:
    with started("stay") as process:
        assert process.stdout is not None
        wire = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.send_signal(number)
            process.wait(timeout=30)
            ended, _, _ = select.select([wire], [], [], 30)
            assert ended
        finally:
            os.close(wire)

"""How large packets may be on the ways to peers, and whether large ones pass.

Without privileges nobody sends probes of a chosen size. What is left: the interface's MTU, the
path MTU that the kernel holds for a connection (RFC 1191: learned from ICMP, so a way that drops
large packets in silence is not in it), the segment size that both ends agreed on, and whether
messages of several packets pass at all, which does find such a way (RFC 2923).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted, listed, ok

CHECK = "path_mtu"

HEADER_BYTES = 120
"""IPv4 or IPv6 and TCP, with room for timestamps and other options."""
JUMBO_BYTES = 9216
"""The largest MTU of Ethernet in use. Beyond it, as on loopback, segments are bounded by half of
the receiver's window, whatever the MTU."""
LARGEST_PACKET = 65_535
"""Of IPv4; the loopback interface of Linux has an MTU of one more."""


@dataclass(frozen=True, slots=True)
class Path:
    """The way to one peer; sizes are bytes, 0 where this system does not tell.

    `large_fault` is a phrase when small messages passed and large ones did not.
    """

    peer: str
    interface: str
    interface_mtu: int = 0
    path_mtu: int = 0
    segment_bytes: int = 0
    large_fault: str = ""


def path_mtu(paths: Sequence[Path]) -> list[Finding]:
    """A line for each way that is narrower than its interface, or drops what is large."""
    lines, whole = [], []
    for path in paths:
        line = _narrow(path)
        if line is None:
            whole.append(path)
        else:
            lines.append(line)
    sizes = sorted({path.interface_mtu for path in paths if path.interface_mtu})
    if whole:
        told = sorted({path.path_mtu or path.interface_mtu for path in whole} - {0})
        shown = " and ".join(str(size) for size in told) or "not told"
        ways = counted(len(whole), "way")
        different = f" over interfaces of MTU {listed(map(str, sizes))}" if len(sizes) > 1 else ""
        lines.append(
            ok(CHECK, f"large messages pass on {ways}; MTU {shown}{different}, as the kernel knows")
        )
    return lines


def _narrow(path: Path) -> Finding | None:
    if path.large_fault:
        return Finding(
            CHECK,
            Level.PROBLEM,
            f"large messages to and from {path.peer} do not pass",
            f"Small ones do; {path.large_fault}. Something on the way drops packets that are "
            "larger than it takes, and says nothing.",
            f"Lower the MTU of {path.interface or 'the interface'} (such as 1280), or let ICMP "
            "pass on the way; a VPN or a switch without jumbo frames is the usual cause.",
        )
    if path.path_mtu and path.path_mtu < min(path.interface_mtu, LARGEST_PACKET):
        return Finding(
            CHECK,
            Level.WARNING,
            f"the way to {path.peer} takes packets of {path.path_mtu} bytes, {path.interface} "
            f"of {path.interface_mtu}",
            "The kernel learned it from the way, or its route says so.",
            "It works; give both machines and what lies between them the same MTU for full speed.",
        )
    mtu = path.path_mtu or path.interface_mtu
    if 0 < path.segment_bytes < mtu - HEADER_BYTES and mtu <= JUMBO_BYTES:
        return Finding(
            CHECK,
            Level.WARNING,
            f"{path.peer} takes segments of {path.segment_bytes} bytes, where this side's MTU is "
            f"{mtu}",
            "The MTUs of the two machines differ.",
            "It works; give both machines the same MTU, above all with jumbo frames.",
        )
    return None

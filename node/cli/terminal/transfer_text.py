"""How far a download or a load is, in words: bytes, share, rate, remaining time."""

from __future__ import annotations

from typing import Protocol

from kakeya_fleet.node.cli.terminal.quantities import bytes_text, rate_text, seconds_text


class Progress(Protocol):
    """What is told of a transfer; zeros while unknown."""

    @property
    def done_bytes(self) -> int:
        """Bytes that have come."""
        ...

    @property
    def total_bytes(self) -> int:
        """Bytes in all."""
        ...

    @property
    def bytes_per_second(self) -> float:
        """Rate of the latest seconds."""
        ...

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the end at that rate."""
        ...


def progress_text(transfer: Progress, *, has_bytes: bool = True) -> str:
    """`400 MiB of 1.17 GiB, 33 %, 12.0 MB/s, 1 min 10 s left`, as far as it is known."""
    parts = []
    if has_bytes and transfer.total_bytes:
        parts.append(f"{bytes_text(transfer.done_bytes)} of {bytes_text(transfer.total_bytes)}")
    elif not transfer.total_bytes and transfer.done_bytes:
        parts.append(bytes_text(transfer.done_bytes))
    if transfer.total_bytes:
        parts.append(f"{100 * transfer.done_bytes // transfer.total_bytes} %")
    if transfer.bytes_per_second > 0:
        parts.append(rate_text(transfer.bytes_per_second))
    if transfer.remaining_seconds > 0:
        parts.append(f"{seconds_text(transfer.remaining_seconds)} left")
    return ", ".join(parts)

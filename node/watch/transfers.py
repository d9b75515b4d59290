"""What is brought into a node: downloads and loads, with their progress."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from kakeya_fleet.node.admission.limits import WatchLimits
from kakeya_fleet.node.watch.latest_rate import LatestRate, remaining_seconds

MOST_TRANSFERS = WatchLimits().transfers
RATE_SECONDS = 5.0
TELL_SECONDS = 0.1
"""Between two progresses that are told: some come with every chunk of a file."""


class TransferKind(Enum):
    """What is brought where."""

    DOWNLOAD = "download"
    """A model's files from the hub to the disk."""
    LOAD = "load"
    """A model's weights from the disk to the memory that computes."""


class TransferState(Enum):
    """How a transfer stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TransferStatus:
    """A transfer at a moment; see `kakeya.v1.Transfer` for the fields."""

    transfer_id: str
    kind: TransferKind
    model_id: str
    state: TransferState
    done_bytes: int
    total_bytes: int
    bytes_per_second: float
    remaining_seconds: float
    started_at_unix: float
    error: str


def _ignore(_transfer_id: str) -> None:
    """The listener before there is one."""


class Transfer:
    """One download or load. Any thread may tell of it."""

    def __init__(self, number: int, kind: TransferKind, model_id: str, of: Transfers) -> None:
        """The `number`-th of its node, from 1."""
        self.number = number
        self.transfer_id = f"{kind.value}-{number}"
        self._kind = kind
        self._model_id = model_id
        self._of = of
        self._lock = threading.Lock()
        self._rate = LatestRate(RATE_SECONDS)
        self._state = TransferState.RUNNING
        self._done_bytes = 0
        self._total_bytes = 0
        self._error = ""
        self._started_at_unix = of.unix()
        self._told_at = of.clock()
        self._rate.reached(0, self._told_at)

    @property
    def model_id(self) -> str:
        """What is brought."""
        return self._model_id

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return self._state is TransferState.RUNNING

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """`done_bytes` of `total_bytes` have come; 0 in all while that is unknown."""
        with self._lock:
            self._done_bytes, self._total_bytes = done_bytes, total_bytes
            now = self._of.clock()
            self._rate.reached(done_bytes, now)
            if now - self._told_at < TELL_SECONDS:
                return
            self._told_at = now
        self._of.on_change(self.transfer_id)

    def done(self) -> None:
        """It came to its end."""
        with self._lock:
            self._state = TransferState.DONE
            self._total_bytes = self._done_bytes = max(self._done_bytes, self._total_bytes)
        self._of.on_change(self.transfer_id)

    def failed(self, error: str) -> None:
        """It failed, for a reason that `error` says with the mend."""
        with self._lock:
            self._state, self._error = TransferState.FAILED, error
        self._of.on_change(self.transfer_id)

    def status(self) -> TransferStatus:
        """How it stands."""
        with self._lock:
            rate = self._rate.rate(self._of.clock()) if self.running else 0.0
            return TransferStatus(
                transfer_id=self.transfer_id,
                kind=self._kind,
                model_id=self._model_id,
                state=self._state,
                done_bytes=self._done_bytes,
                total_bytes=self._total_bytes,
                bytes_per_second=rate,
                remaining_seconds=remaining_seconds(self._done_bytes, self._total_bytes, rate),
                started_at_unix=self._started_at_unix,
                error=self._error,
            )


class Transfers:
    """The transfers that run, and the latest that ended: 64 at most, oldest first.

    `clock` gives monotonic seconds, `unix` seconds since 1970. Any thread may call.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.unix = unix
        self.on_change: Callable[[str], None] = _ignore
        """Hears the id of each transfer that began, went on or ended, in any thread."""
        self._transfers: OrderedDict[str, Transfer] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()

    def begin(self, kind: TransferKind, model_id: str) -> Transfer:
        """A transfer that begins now."""
        with self._lock:
            self._count += 1
            transfer = Transfer(self._count, kind, model_id, self)
            self._transfers[transfer.transfer_id] = transfer
            while len(self._transfers) > MOST_TRANSFERS:
                ended = (key for key, each in self._transfers.items() if not each.running)
                oldest = next(ended, None) or next(iter(self._transfers))
                del self._transfers[oldest]
        self.on_change(transfer.transfer_id)
        return transfer

    @property
    def count(self) -> int:
        """How many have begun since the node's start."""
        return self._count

    def latest_of(self, model_id: str, after: int) -> TransferStatus | None:
        """How the latest of a model stands, of those that began when `count` was `after`, or later.

        None before there is one.
        """
        with self._lock:
            transfers = [
                each
                for each in self._transfers.values()
                if each.model_id == model_id and each.number > after
            ]
        return transfers[-1].status() if transfers else None

    def statuses(self) -> tuple[TransferStatus, ...]:
        """How all of them stand, oldest first."""
        with self._lock:
            transfers = tuple(self._transfers.values())
        return tuple(transfer.status() for transfer in transfers)

    def status(self, transfer_id: str) -> TransferStatus | None:
        """How one stands; None when it is not kept."""
        transfer = self._transfers.get(transfer_id)
        return transfer.status() if transfer is not None else None

"""Memory of keys and values, in slabs that caches take, share and give back.

A slab is what one segment of key slots takes in one group of layers. Caches
share the slabs of a common history. One that will be written by either side is
shared with a reservation for its copy, so that a write never finds the budget
used up.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.memory.allocation import told_as_shortage

Payload = TypeVar("Payload")


@dataclass(eq=False, slots=True)
class Slab(Generic[Payload]):
    """Tensors of one segment, `nbytes` in all, with the number of caches that hold them.

    `copies_reserved` of the holders will take a copy when they write, `copies_under_way`
    are taking theirs, and hold it until they have it.
    """

    payload: Payload
    kind: Hashable
    nbytes: int
    holders: int = 1
    copies_reserved: int = 0
    copies_under_way: int = 0

    def copies_left(self, leaving: int, *, promised: bool = False) -> int:
        """Copies still reserved once so many holders gave it back; see `SlabPool.give_back`."""
        # Who leaves may be one that only reads: the others' copies stay reserved.
        copies = self.copies_reserved - promised
        return max(0, min(copies, self.holders - leaving - 1))

    def freed_bytes(self, leaving: int, *, promised: bool = False) -> int:
        """Bytes that count no more once so many of its holders gave it back.

        `promised` as in `SlabPool.give_back`, of one of them; without it these
        are the least.
        """
        copies = self.copies_left(leaving, promised=promised)
        return self.nbytes * (self.copies_reserved - copies + (self.holders == leaving))


@dataclass(eq=False, slots=True)
class Claim:
    """Bytes of a budget that are reserved for slabs about to be taken; see `SlabPool.claimed`."""

    nbytes: int


class SlabPool(Generic[Payload]):
    """Counts slabs against a budget, and keeps those given back for the next taker.

    `budget_bytes` None is no limit. Any thread may call; what is inside a slab
    is its holders' business.
    """

    def __init__(self, clean: Callable[[Payload], None], budget_bytes: int | None = None) -> None:
        """`clean` makes a used payload like new, so that no session meets another's keys."""
        self._clean = clean
        self._lock = threading.Lock()
        self._copied = threading.Condition(self._lock)
        self._budget_bytes = budget_bytes
        self._held_bytes = 0
        self._reserved_bytes = 0
        self._spares: dict[Hashable, list[Slab[Payload]]] = {}
        self._spare_bytes = 0
        # How many of each kind's spares, the oldest, nobody took since the last `trim`.
        self._untouched: dict[Hashable, int] = {}
        self.on_full: Callable[[int], None] | None = None
        """Gives back what others hold until so many bytes are free, or raises `OutOfKvMemory`."""

    @property
    def budget_bytes(self) -> int | None:
        """Bytes that held and reserved slabs may take together; None without a limit."""
        return self._budget_bytes

    @budget_bytes.setter
    def budget_bytes(self, budget_bytes: int | None) -> None:
        with self._lock:
            self._budget_bytes = budget_bytes
            self._drop_spares()

    @property
    def held_bytes(self) -> int:
        """Bytes of the slabs in use; one that several caches share counts once."""
        return self._held_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes promised to holders of shared slabs, for the copies they will write."""
        return self._reserved_bytes

    @property
    def used_bytes(self) -> int:
        """What counts against the budget: held and reserved."""
        with self._lock:
            return self._held_bytes + self._reserved_bytes

    @property
    def free_bytes(self) -> int | None:
        """Bytes of the budget that are neither held nor reserved; None without a limit."""
        with self._lock:
            return None if self._budget_bytes is None else max(0, self._room())

    def check_room(self, nbytes: int) -> None:
        """Raises `OutOfKvMemory` when the budget has no room for `nbytes` more."""
        with self._lock:
            self._claim(nbytes)

    def make_room(self, nbytes: int) -> None:
        """Sees to it that `nbytes` more are free now, with what `on_full` gives back.

        They are not taken yet. Raises `OutOfKvMemory` when others hold too much.
        """
        with self._lock:
            fits = nbytes <= self._room()
        if not fits and self.on_full is not None:
            # Without the lock: what is given back comes here.
            self.on_full(nbytes)
        self.check_room(nbytes)

    @contextmanager
    def claimed(self, nbytes: int) -> Iterator[Claim]:
        """Reserves `nbytes` for several slabs that are wanted all or not at all.

        Who takes one after the other and gives them back where the last does not fit
        has held what others needed meanwhile. What was not taken is free at the end.
        Raises `OutOfKvMemory` with nothing reserved.
        """
        with self._lock:
            if nbytes:
                self._claim(nbytes)
            self._reserved_bytes += nbytes
        claim = Claim(nbytes)
        try:
            yield claim
        finally:
            with self._lock:
                self._reserved_bytes -= claim.nbytes
                claim.nbytes = 0

    def take(
        self, kind: Hashable, nbytes: int, make: Callable[[], Payload], claim: Claim | None = None
    ) -> Slab[Payload]:
        """A clean slab of `nbytes`, of what was claimed for it; equal kinds are interchangeable.

        Raises `OutOfKvMemory`, also where the machine has less than the budget, and what
        else `make` raises, with nothing taken. `ValueError` for more than was claimed.
        """
        with self._lock:
            if claim is None:
                self._claim(nbytes)
            elif nbytes <= claim.nbytes:
                claim.nbytes -= nbytes
                self._reserved_bytes -= nbytes
            else:
                raise ValueError(f"{nbytes} bytes are taken of {claim.nbytes} that were claimed")
            self._held_bytes += nbytes
            spare = self._spare(kind)
        if spare is not None:
            return self._cleaned(spare)
        try:
            with told_as_shortage():
                return Slab(make(), kind, nbytes)
        except BaseException:
            with self._lock:
                self._held_bytes -= nbytes
            raise

    def share(self, slab: Slab[Payload], *, will_write: bool) -> Slab[Payload]:
        """`slab` for one more holder.

        With `will_write`, holders will come to write to it and need a copy each
        but the last, whose bytes are reserved now: raises `OutOfKvMemory`.
        """
        with self._lock:
            if will_write:
                self._claim(slab.nbytes)
                self._reserve(slab, slab.copies_reserved + 1)
                self._drop_spares()
            slab.holders += 1
        return slab

    def writable(
        self,
        slab: Slab[Payload],
        make: Callable[[], Payload],
        copy: Callable[[Payload, Payload], None],
    ) -> Slab[Payload]:
        """`slab` if it has one holder, else a copy for the caller, who holds the other no more.

        `copy(target, source)` fills the new payload. The slab must have been
        shared with `will_write`: its reservation pays for the copy, whatever
        the budget has become.
        """
        with self._lock:
            # Another thread takes the last copy: the slab may be the caller's alone after it.
            while slab.holders > 1 and not slab.copies_reserved and slab.copies_under_way:
                self._copied.wait()
            if slab.holders == 1:
                return slab
            if slab.copies_reserved == 0:
                raise ValueError("a slab that was shared to be read cannot be written")
            self._reserve(slab, slab.copies_reserved - 1)
            self._held_bytes += slab.nbytes
            spare = self._spare(slab.kind)
            slab.copies_under_way += 1
        try:
            return self._copy_of(slab, spare, make, copy)
        finally:
            with self._lock:
                slab.copies_under_way -= 1
                self._copied.notify_all()

    def _copy_of(
        self,
        slab: Slab[Payload],
        spare: Slab[Payload] | None,
        make: Callable[[], Payload],
        copy: Callable[[Payload, Payload], None],
    ) -> Slab[Payload]:
        """A copy that is counted already, in `spare` or a new slab; its taker leaves `slab`."""
        try:
            with told_as_shortage():
                fresh = self._cleaned(spare) if spare else Slab(make(), slab.kind, slab.nbytes)
        except BaseException:
            with self._lock:
                self._held_bytes -= slab.nbytes
                self._reserve(slab, min(slab.copies_reserved + 1, slab.holders - 1))
            raise
        # The other is held until it is copied: its last holder may leave meanwhile.
        copy(fresh.payload, slab.payload)
        self.give_back(slab)
        return fresh

    def give_back(self, slab: Slab[Payload], *, keep: bool = True, promised: bool = False) -> None:
        """One holder less; the last one's slab becomes a spare, if it is to be kept.

        With `promised`, it was shared for this holder with `will_write`, and the
        holder has neither written to it nor shared it on: what was reserved then
        is free again. Otherwise that may be what pays for another's copy.
        """
        with self._lock:
            if slab.holders < 1:
                raise ValueError("a slab was given back twice")
            self._reserve(slab, slab.copies_left(1, promised=promised))
            slab.holders -= 1
            if slab.holders:
                return
            self._held_bytes -= slab.nbytes
            if keep:
                self._spares.setdefault(slab.kind, []).append(slab)
                self._spare_bytes += slab.nbytes
                self._drop_spares()

    def trim(self) -> int:
        """Drops the spares that nobody took since the last call; their bytes."""
        with self._lock:
            before = self._spare_bytes
            for kind, count in self._untouched.items():
                spares = self._spares.get(kind, [])
                self._spare_bytes -= sum(spare.nbytes for spare in spares[:count])
                del spares[:count]
            self._spares = {kind: spares for kind, spares in self._spares.items() if spares}
            self._untouched = {kind: len(spares) for kind, spares in self._spares.items()}
            return before - self._spare_bytes

    def freed_by(self, slab: Slab[Payload], *, promised: bool = False) -> int:
        """Bytes that count no more once a holder gives `slab` back, as with `give_back`."""
        with self._lock:
            return slab.freed_bytes(1, promised=promised)

    def _reserve(self, slab: Slab[Payload], copies: int) -> None:
        self._reserved_bytes += (copies - slab.copies_reserved) * slab.nbytes
        slab.copies_reserved = copies

    def _spare(self, kind: Hashable) -> Slab[Payload] | None:
        """A spare of `kind` that counts as held already, or room for a new slab."""
        spares = self._spares.get(kind)
        if not spares:
            self._drop_spares()
            return None
        spare = spares.pop()
        self._spare_bytes -= spare.nbytes
        self._untouched[kind] = min(self._untouched.get(kind, 0), len(spares))
        return spare

    def _cleaned(self, spare: Slab[Payload]) -> Slab[Payload]:
        self._clean(spare.payload)
        spare.holders = 1
        return spare

    def _room(self) -> int:
        """Bytes that the budget has left, below 0 once it was lowered under what is used."""
        if self._budget_bytes is None:
            return sys.maxsize
        return self._budget_bytes - self._held_bytes - self._reserved_bytes

    def _claim(self, nbytes: int) -> None:
        free = self._room()
        if nbytes > free:
            raise OutOfKvMemory(
                f"{nbytes} K/V bytes are needed and {max(0, free)} of the budget are free",
                needed_bytes=str(nbytes),
                free_bytes=str(max(0, free)),
            )

    def _drop_spares(self) -> None:
        """Drops spares until held, reserved and spare bytes fit the budget."""
        room = self._room()
        for kind in list(self._spares):
            spares = self._spares[kind]
            while spares and self._spare_bytes > room:
                self._spare_bytes -= spares.pop().nbytes
            if kind in self._untouched:
                self._untouched[kind] = min(self._untouched[kind], len(spares))
            if not spares:
                del self._spares[kind]

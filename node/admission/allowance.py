"""What all callers hold of one thing that a node has so much of and no more."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.knob import Knob, Unit
from kakeya_fleet.node.admission.share import Cause, kept, refusal
from kakeya_fleet.node.metrics import NodeMetrics

Refuse = Callable[..., Exception]
"""Makes the error of who gets nothing, of its words and metadata: a class of `Refusal`."""


class Allowance:
    """Places or bytes of one knob. Any thread may call."""

    def __init__(self, knob: Knob, refuse: Refuse, metrics: NodeMetrics) -> None:
        """Who is refused gets the error that `refuse` makes, which is counted by its cause."""
        self.knob = knob
        self._most = int(knob.value)
        self._refuse = refuse
        self._metrics = metrics
        self._lock = threading.Lock()
        self._held: dict[Caller, int] = {}
        self._used = 0
        self._refusals: Counter[Cause] = Counter()
        metrics.admission_limit.labels(knob.name).set(self._most)
        metrics.admission_used.labels(knob.name).set_function(lambda: self._used)

    @property
    def most(self) -> int:
        """What all callers may hold together."""
        return self._most

    @property
    def used(self) -> int:
        """What they hold now."""
        return self._used

    def held(self, caller: Caller) -> int:
        """What one of them holds."""
        return self._held.get(caller, 0)

    @property
    def refused_count(self) -> Mapping[Cause, int]:
        """How often somebody was refused since the start, by cause."""
        return dict(self._refusals)

    def greediest(self) -> Caller | None:
        """Who holds the most; None while nobody holds anything."""
        with self._lock:
            return max(self._held, key=lambda caller: (self._held[caller], caller), default=None)

    def would_refuse(
        self, caller: Caller, amount: int = 1, after: Caller | None = None
    ) -> Cause | None:
        """Why `take` would raise now; None if it would not. Counts nothing.

        With `after` as if that caller had given one back.
        """
        with self._lock:
            used, held = self._used, self._held.get(caller, 0)
            if after is not None:
                used, held = used - 1, held - (after == caller)
            return refusal(self._most, used, held, amount)

    def take(self, caller: Caller, amount: int = 1) -> None:
        """Holds so much more until `give_back`. Raises what `refuse` makes, and counts it."""
        with self._lock:
            held = self._held.get(caller, 0)
            cause = refusal(self._most, self._used, held, amount)
            if cause is None:
                if held + amount:
                    self._held[caller] = held + amount
                self._used += amount
                return
        raise self.refused(caller, cause, amount)

    def give_back(self, caller: Caller, amount: int = 1) -> None:
        """Holds so much less."""
        with self._lock:
            left = self._held.get(caller, 0) - amount
            if left < 0:
                raise ValueError(f"{caller} gives back more of {self.knob.name} than it holds")
            if left:
                self._held[caller] = left
            else:
                self._held.pop(caller, None)
            self._used -= amount

    def take_back(self, caller: Caller, amount: int = 1) -> None:
        """As `give_back`, but for what the caller did not use; that is counted."""
        self.give_back(caller, amount)
        self._metrics.admission_reclaimed.labels(self.knob.name).inc(amount)

    @contextmanager
    def holding(self, caller: Caller, amount: int = 1) -> Iterator[None]:
        """Holds it for as long as the context lasts. Raises as `take`."""
        self.take(caller, amount)
        try:
            yield
        finally:
            self.give_back(caller, amount)

    def refused(self, caller: Caller, cause: Cause, amount: int = 1) -> Exception:
        """The error of one who is refused, counted."""
        with self._lock:
            self._refusals[cause] += 1
        self._metrics.admission_refused.labels(self.knob.name, cause.value).inc()
        unit = " bytes" if self.knob.unit is Unit.BYTES else ""
        if cause is Cause.FULL:
            text = f"all {self._most}{unit} of {self.knob.name} are taken: {self._used} now"
            text += f", and {amount} asked for" if amount > 1 else ""
        else:
            text = (
                f"the last {kept(self._most)}{unit} of {self._most} of {self.knob.name} are kept "
                f"for callers who hold less than this one, with {self.held(caller)}"
            )
        return self._refuse(text, limit=str(self._most), used=str(self._used), cause=cause.value)

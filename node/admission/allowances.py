"""All that a node's callers share: one allowance a bound that is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kakeya_fleet.node.admission.allowance import Allowance, Refuse
from kakeya_fleet.node.admission.knob import Knob
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.admission.share import Cause
from kakeya_fleet.node.metrics import NodeMetrics


@dataclass(frozen=True, slots=True)
class Use:
    """A bound as it stands: `used` is None for one that nobody holds, such as a deadline.

    `refused` counts those who were turned away since the node's start, by cause.
    """

    knob: Knob
    used: int | None
    refused: Mapping[Cause, int]


class Allowances:
    """Those of one node, by the names of their knobs."""

    def __init__(self, limits: Limits, metrics: NodeMetrics) -> None:
        self.limits = limits
        self._metrics = metrics
        self._knobs = {knob.name: knob for knob in limits.knobs()}
        self._shared: dict[str, Allowance] = {}
        self._elsewhere: dict[str, tuple[Callable[[], int], Callable[[], int]]] = {}

    def share(self, name: str, refuse: Refuse) -> Allowance:
        """What callers hold of the knob `name`; whoever asks for one too many gets `refuse`.

        Always the same for a knob: what is taken away and served again counts on.
        """
        if name not in self._shared:
            self._shared[name] = Allowance(self._knobs[name], refuse, self._metrics)
        return self._shared[name]

    def watch(
        self, name: str, used: Callable[[], int], refused: Callable[[], int] = lambda: 0
    ) -> None:
        """Shows what is taken of the knob `name` elsewhere, and how often it was full there.

        Both are asked each time they are shown. Refusals are counted by whoever refuses, such as
        `kakeya_cards_skipped_total` and `kakeya_dials_refused_total`.
        """
        knob = self._knobs[name]
        self._elsewhere[name] = (used, refused)
        self._metrics.admission_limit.labels(name).set(knob.value)
        self._metrics.admission_used.labels(name).set_function(used)

    def uses(self) -> Iterator[Use]:
        """Every bound, in the order of `Limits`."""
        for name, knob in self._knobs.items():
            if name in self._elsewhere:
                used, refused = self._elsewhere[name]
                yield Use(knob, used(), {Cause.FULL: refused()})
                continue
            allowance = self._shared.get(name)
            yield Use(
                knob,
                allowance.used if allowance is not None else None,
                allowance.refused_count if allowance is not None else {},
            )

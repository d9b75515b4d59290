"""What drafts and forwards take side by side, and one after the other.

On two machines they take no longer side by side. Where proposer and verifier share processors, a
device or the way to memory, each is slower beside the other: measured with two processes of one
model on two cores, both take up to twice their time, so that nothing is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LEAST_WEIGHT = 0.1
"""Of a block in the mean, about the last ten of its kind; the first ones count alike."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many times as long something took as when its model was loaded, in the mean."""

    mean: float = 0.0
    count: int = 0

    def after(self, scale: float) -> Scale:
        """It was measured once more."""
        count = self.count + 1
        return Scale(self.mean + max(LEAST_WEIGHT, 1.0 / count) * (scale - self.mean), count)


NOT_MEASURED = Scale()


@dataclass(frozen=True, slots=True)
class Overlap:
    """Forwards beside a draft and apart, and drafts made beside a forward and apart.

    A value: events return the next one. `since_beside` and `since_apart` count the blocks since
    the last forward of either kind.
    """

    forward_beside: Scale = NOT_MEASURED
    forward_apart: Scale = NOT_MEASURED
    draft_beside: Scale = NOT_MEASURED
    draft_apart: Scale = NOT_MEASURED
    since_beside: int = 0
    since_apart: int = 0

    @property
    def slowed_forward(self) -> float:
        """By how much a forward's scale rises beside a draft; 0 until both were measured."""
        return _slowed(self.forward_apart, self.forward_beside)

    @property
    def slowed_draft(self) -> float:
        """By how much a draft's scale rises beside a forward; 0 until both were measured."""
        return _slowed(self.draft_apart, self.draft_beside)

    def after_forward(self, scale: float, *, beside: bool) -> Overlap:
        """A block was verified, `beside` a draft or not."""
        if beside:
            return replace(
                self,
                forward_beside=self.forward_beside.after(scale),
                since_beside=0,
                since_apart=self.since_apart + 1,
            )
        return replace(
            self,
            forward_apart=self.forward_apart.after(scale),
            since_apart=0,
            since_beside=self.since_beside + 1,
        )

    def after_draft(self, scale: float, *, beside: bool) -> Overlap:
        """A model made a draft, `beside` a forward or not."""
        if beside:
            return replace(self, draft_beside=self.draft_beside.after(scale))
        return replace(self, draft_apart=self.draft_apart.after(scale))


def _slowed(apart: Scale, beside: Scale) -> float:
    # That one is faster beside the other is chance.
    return max(0.0, beside.mean - apart.mean) if apart.count and beside.count else 0.0


NOTHING_MEASURED = Overlap()

"""What was measured of one block, which a pace learns from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockMeasurement:
    """One verified block for which a draft was asked, empty ones included.

    `wait_seconds` is what the verifier waited; `round_trip_seconds` the whole
    way of the draft and `compute_seconds` the proposer's part of it. `other_seconds`
    are those of the block that were neither verifying nor waiting; 0 when unknown.
    `beside_draft` says that the next draft was made ahead during its forward, `made_ahead` that
    this one was during the forward before. A model made `made_count` tokens for it; none if it
    `is_found`: what it took says nothing of one that a model makes. One that `reads` also took
    the time of reading text that no block was drafted for, as a prompt is. Its forward had
    `row_count` rows, 0 for one more than were drafted. Where the verifier `went_on`, it decoded
    during the wait, and those tokens are among the committed ones.
    """

    drafted_count: int
    accepted_count: int
    committed_count: int
    verify_seconds: float
    wait_seconds: float
    round_trip_seconds: float
    compute_seconds: float
    other_seconds: float = 0.0
    beside_draft: bool = False
    made_ahead: bool = False
    made_count: int = 0
    is_found: bool = False
    reads: bool = False
    row_count: int = 0
    went_on: bool = False

    @property
    def rows(self) -> int:
        """Of its forward."""
        return self.row_count or self.drafted_count + 1

    @property
    def trial_count(self) -> int:
        """Drafted tokens that were compared: those accepted and one mismatch."""
        return min(self.accepted_count + 1, self.drafted_count)

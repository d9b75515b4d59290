"""What this node's sessions measured of drafts, block by block, for its plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.speculation.generation_report import BlockTiming
from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance
from kakeya_fleet.node.planning.acceptance_ledger import AcceptanceLedger
from kakeya_fleet.node.planning.draft_time_ledger import DraftTimeLedger
from kakeya_fleet.node.planning.speed_ledger import Gains, SpeedLedger


class DraftLedgers:
    """Of greedy text and of text at a temperature, `sampled`, apart: of that less is guessed.

    Times are those of `clock`, monotonic seconds. Belongs to one event loop.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._acceptances = {sampled: AcceptanceLedger() for sampled in (False, True)}
        self._speeds = {sampled: SpeedLedger() for sampled in (False, True)}
        self._times = DraftTimeLedger()

    def record(
        self, session_id: str, verifier: str, block: BlockTiming, *, sampled: bool, looped: bool
    ) -> None:
        """Adds a block of the model `verifier`.

        Text that has `looped` is guessed by anybody: it says nothing of other text.
        """
        now = self._clock()
        if not looped:
            self._speeds[sampled].record(session_id, verifier, block, now)
        if block.proposer is None:
            return
        self._times.record(
            block.proposer,
            drafted_count=block.drafted_count,
            seconds=block.draft_seconds + block.wire_seconds,
            found=block.found,
            now=now,
        )
        if not looped:
            _node_id, proposer = block.proposer
            self._acceptances[sampled].record(
                (verifier, proposer),
                session_id,
                drafted_count=block.drafted_count,
                tried_count=block.tried_count,
                accepted_count=block.accepted_count,
                now=now,
            )

    def acceptances(self, *, sampled: bool) -> Mapping[tuple[str, str], MeasuredAcceptance]:
        """By verifier model and proposer model."""
        return self._acceptances[sampled].rates(self._clock())

    def gains(self, *, sampled: bool) -> Gains:
        """How many times as fast as alone sessions were."""
        return self._speeds[sampled].gains(self._clock())

    def times(self) -> Mapping[ProposerKey, tuple[StepCost, ...]]:
        """Until drafts came, the way included."""
        return self._times.costs(self._clock())

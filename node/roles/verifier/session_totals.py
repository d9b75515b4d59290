"""What all sessions of a node did since its start."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kakeya_fleet.node.roles.verifier.observer import SessionObserver

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class SessionTotals(SessionObserver):
    """A `SessionObserver` that adds up."""

    def __init__(self) -> None:
        self.generated_token_count = 0
        self.prefilled_token_count = 0
        self.drafted_count = 0
        self.accepted_count = 0
        self.verify_forward_count = 0
        self.drafted_here_count = 0
        """Blocks of this node's own proposers for its own sessions."""
        self.opened_counts: Counter[str] = Counter()
        """Sessions that were opened or forked, by model."""

    def opened(self, session: OpenSession) -> None:
        """See `SessionObserver.opened`."""
        self.opened_counts[session.served.offer.model_id] += 1

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:  # noqa: ARG002
        """See `SessionObserver.prefilled`."""
        self.prefilled_token_count += token_count

    def committed(self, session: OpenSession, token_count: int) -> None:  # noqa: ARG002
        """See `SessionObserver.committed`."""
        self.generated_token_count += token_count

    def block(self, session: OpenSession, block: BlockTiming) -> None:
        """See `SessionObserver.block`."""
        self.verify_forward_count += 1
        if block.drafted_count:
            self.drafted_count += block.drafted_count
            self.accepted_count += block.accepted_count
            if block.proposer is not None and session.pairing.is_here(block.proposer):
                self.drafted_here_count += 1

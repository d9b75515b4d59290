"""Context vectors that a busy machine brings later than their proposal."""

import pytest

from kakeya_fleet.node.roles.proposer import draft_session

LATE_SECONDS = 2.0
"""Not a minute: drafts whose vectors were lost wait for them too."""


def wait_for_vectors(monkeypatch: pytest.MonkeyPatch, seconds: float = LATE_SECONDS) -> None:
    """Proposers of this process wait so long for vectors that are on their way."""
    monkeypatch.setattr(draft_session, "FEATURE_WAIT_SECONDS", seconds)

"""Acceptance of a pair: measured, or assumed from the proposer's kind."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.card import ModelKind
from fleet.node_view import MeasuredAcceptance

# Assumptions, no measurements: they choose a pair for its first blocks only,
# after which the figures of the pair itself count. A long block then commits
# 1 / (1 - acceptance) tokens: 1.7, 2.5 and, for a drafter that is conditioned on the
# verifier (3 to 6 were published of such), 3.3. An autoregressive drafter is put
# with the masked-diffusion ones.
ASSUMED_ACCEPTANCE: Mapping[ModelKind, float] = {
    ModelKind.NGRAM: 0.4,
    ModelKind.MASKED_DIFFUSION: 0.6,
    ModelKind.AUTOREGRESSIVE: 0.6,
    ModelKind.DFLASH: 0.7,
}

# Below it a share is noise (standard error up to 0.06 at 64), and one unlucky
# first block would shut a proposer out for good.
MIN_DRAFTED_COUNT = 64


def acceptance_of(kind: ModelKind, measured: MeasuredAcceptance | None) -> tuple[float, bool]:
    """Acceptance in 0 to 1, and whether it was measured."""
    if measured is None or measured.drafted_count < MIN_DRAFTED_COUNT:
        return ASSUMED_ACCEPTANCE[kind], False
    return min(1.0, max(0.0, measured.acceptance_rate)), True

"""Acceptance of a pair: measured over sessions, or assumed from the proposer's kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import ModelKind
from kakeya_fleet.fleet.views.node_view import MeasuredAcceptance


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a session may expect of a pair, in 0 to 1: about four of five lie in the range.

    `low` <= `rate` <= `high`.
    """

    rate: float
    low: float
    high: float
    is_measured: bool = False


# Assumptions, no measurements: they choose a pair for its first blocks only,
# after which the figures of the pair itself count. A long block then commits
# 1 / (1 - acceptance) tokens: 1.7, 2.5 and, for a drafter that is conditioned on the
# verifier (3 to 6 were published of such), 3.3. An autoregressive drafter is put
# with the masked-diffusion ones. Prompt lookup has the widest range: it finds
# nothing in new text, and almost all of what is copied.
ASSUMED_ACCEPTANCE: Mapping[ModelKind, Acceptance] = {
    ModelKind.NGRAM: Acceptance(0.4, 0.1, 0.9),
    ModelKind.MASKED_DIFFUSION: Acceptance(0.6, 0.3, 0.8),
    ModelKind.AUTOREGRESSIVE: Acceptance(0.6, 0.3, 0.8),
    ModelKind.DFLASH: Acceptance(0.7, 0.4, 0.85),
}
# Of a plain model with the verifier's own weights, in fewer bits. Of SmolLM2-135M in four of them
# 12 answers had 0.97 to 1.00 greedily, and 0.87 to 1.00 at temperature 0.7.
SAME_WEIGHTS_ACCEPTANCE = Acceptance(0.95, 0.85, 0.99)

# Below it a share is noise (standard error up to 0.06 at 64), and one unlucky
# first block would shut a proposer out for good.
MIN_DRAFTED_COUNT = 64
# Half of one session whose text did not repeat itself.
MIN_SESSION_COUNT = 0.5
# With fewer, a range of four of five of them is none: it then holds the assumed one too.
RANGED_SESSION_COUNT = 5.0


def has_same_weights(verifier_digest: str, proposer_digest: str) -> bool:
    """Whether both were read from the same weights, by their digests; empty ones are unknown."""
    return verifier_digest == proposer_digest != ""


def acceptance_of(
    kind: ModelKind, measured: MeasuredAcceptance | None, *, same_weights: bool = False
) -> Acceptance:
    """What was measured of a pair, where that is enough, else what is assumed of the kind."""
    assumed = SAME_WEIGHTS_ACCEPTANCE if same_weights else ASSUMED_ACCEPTANCE[kind]
    if (
        measured is None
        or measured.drafted_count < MIN_DRAFTED_COUNT
        or measured.session_count < MIN_SESSION_COUNT
    ):
        return assumed
    low, high = measured.low, measured.high
    if measured.session_count < RANGED_SESSION_COUNT:
        low, high = min(low, assumed.low), max(high, assumed.high)
    rate = min(1.0, max(0.0, measured.acceptance_rate))
    return Acceptance(rate, min(rate, max(0.0, low)), max(rate, min(1.0, high)), is_measured=True)

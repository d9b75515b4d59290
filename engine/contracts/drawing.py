"""How a verifier draws its tokens, told to drafters that can draw with the same numbers.

The random number of a position is a function of (seed, position). A drafter that puts it to its
own distribution makes the verifier's choice wherever both distributions agree, not only where
that is the likeliest token (Daliri, Musco and Suresh, "Coupling without Communication and
Drafter-Invariant Speculative Decoding", 2025). What is accepted is compared with the verifier's
own choice as ever, so nothing that a drafter draws is in the stream unless that chose it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drawing:
    """Of a sampled generation, as `engine.sampling.choice` has them; greedy ones have none.

    `temperature` is above 0. What else changes a choice, a bias, penalties and a grammar, is the
    verifier's alone.
    """

    temperature: float
    seed: int
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

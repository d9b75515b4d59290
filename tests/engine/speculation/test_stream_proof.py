"""The short proof of streams: it holds for a verifier that keeps the rule, and for no other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.speculation.stream_proof import GENERATED, HISTORY, prove_streams
from tests.support.hash_verifier import HashVerifier

SEEDS = (0, 1, 2)


class Narrowed(HashVerifier):
    """What is chosen depends on how many tokens came in a forward, above `limit` of them."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        outputs = super().forward_batch(feeds)
        for feed, output in zip(feeds, outputs, strict=True):
            if output.logits is not None and len(feed.token_ids) > self._limit:
                output.logits[:] = output.logits[:, ::-1].copy()
        return outputs


@pytest.mark.parametrize("seed", SEEDS)
def test_it_holds_past_the_window_with_drafts_of_both_kinds(seed: int) -> None:
    verifier = HashVerifier()
    proof = prove_streams(verifier, seed=seed)
    assert proof.holds, proof
    assert proof.is_past_window
    assert (proof.history, proof.generated) == (HISTORY, GENERATED)
    assert 0 < proof.accepted < proof.drafted
    assert verifier.pool.used_bytes == 0


def test_other_choices_in_wide_forwards_are_found() -> None:
    proof = prove_streams(Narrowed(4))
    assert (proof.same_with_lies, proof.same_in_pieces, proof.holds) == (False, True, False)


def test_a_history_that_counts_by_how_it_came_is_found() -> None:
    class Forgetful(HashVerifier):
        """Keeps other keys of what came in short forwards."""

        def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
            changed = [
                Feed(feed.cache, [(each + 1) % 48 for each in feed.token_ids], feed.want_logits)
                if not feed.want_logits and len(feed.token_ids) < 14
                else feed
                for feed in feeds
            ]
            return super().forward_batch(changed)

    proof = prove_streams(Forgetful())
    assert (proof.same_in_pieces, proof.holds) == (False, False)


def test_a_model_of_few_positions_is_run_with_less_of_everything() -> None:
    proof = prove_streams(HashVerifier(context_length=60))
    assert proof.holds
    assert proof.history + proof.generated <= 60
    assert proof.history > proof.sink + proof.window

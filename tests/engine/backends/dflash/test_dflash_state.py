"""A session's state with a DFlash drafter: what vectors it wants, and what it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends.dflash import config
from kakeya_fleet.engine.backends.dflash.config import DraftLayerRule
from kakeya_fleet.engine.backends.dflash.draft_state import DFlashDraftState
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.dflash.visible import visible_keys
from kakeya_fleet.engine.backends.torch_backend.dflash import load_dflash
from kakeya_fleet.engine.backends.torch_backend.dflash.context_cache import ContextCache
from kakeya_fleet.engine.contracts.draft import ConditionedDraftState
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from tests.support.breadth import wide

WIDTH, BLOCK = 32, 8
RNG = np.random.default_rng(11)
TOKENS = RNG.integers(0, 96, 400).tolist()
VECTORS = RNG.standard_normal((400, WIDTH), dtype=np.float32)


@pytest.fixture(scope="module", params=[1, 2], ids="version {}".format)
def proposer(
    request: pytest.FixtureRequest,
    random_checkpoint: Callable[..., Path],
    random_drafter: Callable[..., Path],
) -> DFlashProposer:
    target = random_checkpoint("Qwen3ForCausalLM", tie_word_embeddings=False)
    folder = random_drafter(target, version=request.param, block_size=BLOCK)
    return load_dflash(ModelFolder(folder, "drafter"), ModelFolder(target, "target"))


def whole(proposer: DFlashProposer, length: int, first: int = 0) -> DFlashDraftState:
    """A state with a history of `length` tokens, and the vectors from `first` on."""
    state = proposer.open(TOKENS[:length])
    state.take_features(first, VECTORS[first : length - 1])
    return state


def drafted(state: DFlashDraftState, size: int = BLOCK - 1) -> tuple[int, ...]:
    return state.propose((), size, 0).token_ids


def assert_features_fault(step: Callable[[], object]) -> None:
    with pytest.raises(DraftFailed) as caught:
        step()
    assert caught.value.kind is DraftFaultKind.FEATURES


def test_a_draft_is_one_pass_over_one_block(proposer: DFlashProposer) -> None:
    state = whole(proposer, 50)
    assert isinstance(state, ConditionedDraftState)
    draft = state.propose((), BLOCK - 1, 0)
    assert len(draft.token_ids) == BLOCK - 1
    assert (draft.diffusion_step_count, draft.forward_pass_count) == (1, 1)
    assert draft.compute_seconds == draft.round_trip_seconds > 0
    assert drafted(state) == draft.token_ids, "drafting leaves nothing behind"
    assert all(type(token) is int and 0 <= token < 96 for token in draft.token_ids)


def test_a_larger_block_is_the_drafters_own_and_a_smaller_one_has_fewer_masks(
    proposer: DFlashProposer,
) -> None:
    state = whole(proposer, 50)
    assert len(drafted(state, 64)) == BLOCK - 1
    context = state._context
    for size in (1, 3):
        assert len(drafted(state, size)) == size
        hidden = proposer.model.block_hidden(context, TOKENS[49], size + 1)
        logits = proposer.model.logits(hidden[1:])
        if proposer.model.config.version_2 is None:
            assert tuple(logits.argmax(1).tolist()) == drafted(state, size)
        else:
            candidates = logits.topk(proposer.model.config.version_2.selector.top_k).indices
            for token, row in zip(drafted(state, size), candidates.tolist(), strict=True):
                assert token in row
    assert drafted(state, 0) == ()


def test_what_is_not_drafted(proposer: DFlashProposer) -> None:
    state = whole(proposer, 50)
    draft = state.propose((7,), BLOCK - 1, 0)
    assert (draft.token_ids, draft.forward_pass_count) == ((), 0)
    assert drafted(proposer.open([])) == ()


def test_the_first_token_of_a_history_needs_no_vectors(proposer: DFlashProposer) -> None:
    assert len(drafted(proposer.open([5]))) == BLOCK - 1
    assert drafted(proposer.open([5])) != drafted(proposer.open([6]))


@pytest.mark.parametrize("known", [0, 1, 48])
def test_vectors_that_end_too_early_are_named(known: int, proposer: DFlashProposer) -> None:
    state = proposer.open(TOKENS[:50])
    state.take_features(0, VECTORS[:known])
    assert_features_fault(lambda: drafted(state))
    state.take_features(known, VECTORS[known:49])
    assert drafted(state) == drafted(whole(proposer, 50))


@pytest.mark.parametrize(
    "vectors",
    [
        np.zeros((3, WIDTH + 1), np.float32),
        np.zeros((3, 2, WIDTH // 2), np.float32),
        np.zeros(WIDTH, np.float32),
        np.zeros((3, WIDTH), np.float64),
        np.full((1, WIDTH), np.nan, np.float32),
        np.full((1, WIDTH), -np.inf, np.float32),
    ],
    ids=lambda vectors: f"{vectors.shape}{vectors.dtype}",
)
def test_vectors_that_are_none_are_refused_and_nothing_of_them_is_kept(
    vectors: np.ndarray, proposer: DFlashProposer
) -> None:
    state = whole(proposer, 50)
    expected = drafted(state)
    assert_features_fault(lambda: state.take_features(49, vectors))
    assert_features_fault(lambda: state.take_features(300, vectors))
    assert_features_fault(lambda: state.take_features(-1, VECTORS[:3]))
    assert state.features_end == 49
    assert drafted(state) == expected


def test_one_number_that_is_not_finite_spoils_all_of_its_vectors(proposer: DFlashProposer) -> None:
    state = proposer.open(TOKENS[:50])
    spoiled = VECTORS[:49].copy()
    spoiled[48, 31] = np.inf
    assert_features_fault(lambda: state.take_features(0, spoiled))
    assert state.features_end == 0


def test_what_is_known_already_is_ignored(proposer: DFlashProposer) -> None:
    state = proposer.open(TOKENS[:50])
    state.take_features(0, VECTORS[:40])
    state.take_features(30, np.concatenate((-VECTORS[30:40], VECTORS[40:49])))
    state.take_features(10, -VECTORS[10:20])
    state.take_features(300, VECTORS[:0])
    assert state.features_end == 49
    assert drafted(state) == drafted(whole(proposer, 50))


def test_a_gap_forgets_what_was_before(proposer: DFlashProposer) -> None:
    """A drafter that came late, or lost some, goes on with what there is."""
    state = whole(proposer, 20)
    state.commit(TOKENS[20:90])
    state.take_features(60, VECTORS[60:89])
    assert drafted(state) == drafted(whole(proposer, 90, first=60))
    assert drafted(state) != drafted(whole(proposer, 90)), "the context must matter"
    hidden = [
        proposer.model.block_hidden(one._context, TOKENS[89], BLOCK)
        for one in (state, whole(proposer, 90, first=60), whole(proposer, 90))
    ]
    torch.testing.assert_close(hidden[0], hidden[1], rtol=0, atol=1e-5)
    assert (hidden[0] - hidden[2]).abs().max() > 1e-2


def test_a_last_token_outside_the_vocabulary_is_named(proposer: DFlashProposer) -> None:
    state = proposer.open([5, 96])
    state.take_features(0, VECTORS[:1])
    with pytest.raises(DraftFailed) as caught:
        drafted(state)
    assert caught.value.kind is DraftFaultKind.OUT_OF_VOCABULARY


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 5)), max_size=12)


@settings(deadline=None, max_examples=15)
@given(length=st.integers(1, 120), prefix=st.integers(0, 120), steps=STEPS)
def test_only_tokens_and_vectors_count_not_how_they_came(
    proposer: DFlashProposer, length: int, prefix: int, steps: list[tuple[bool, int, int]]
) -> None:
    """Late, early, in pieces, twice, with drafts in between."""
    state = proposer.open(TOKENS[: min(prefix, length)])
    end = 0
    for tokens, count, back in [*steps, (True, length, 0), (False, length, 0)]:
        if tokens:
            state.commit(TOKENS[state.length : min(state.length + count, length)])
        else:
            first = max(0, end - back)
            end = max(end, min(first + count, length - 1))
            state.take_features(first, VECTORS[first : min(first + count, length - 1)])
        assert state.features_end == end
        if state.length and end >= state.length - 1:
            # Vectors that came early change nothing yet.
            assert drafted(state) == drafted(whole(proposer, state.length))
    assert (state.length, state.features_end) == (length, length - 1)


def test_sessions_know_nothing_of_each_other(proposer: DFlashProposer) -> None:
    alone = drafted(whole(proposer, 50))
    state, other = whole(proposer, 50), whole(proposer, 50)
    other.commit(TOKENS[60:70])
    other.take_features(49, VECTORS[100:110])
    drafted(other)
    assert drafted(state) == alone


@pytest.mark.parametrize("version", [wide(1), 2])
def test_memory_does_not_grow_with_the_history(
    version: int, random_checkpoint: Callable[..., Path], random_drafter: Callable[..., Path]
) -> None:
    target = random_checkpoint("Qwen3ForCausalLM")
    window = 16
    folder = random_drafter(
        target,
        version=version,
        layer_types=["sliding_attention"] * 2,
        sliding_window=window,
        is_causal=False,
    )
    proposer = load_dflash(ModelFolder(folder, "drafter"), ModelFolder(target, "target"))
    state = proposer.open(TOKENS[:1])
    sizes = []
    for length in range(2, 100):
        state.commit(TOKENS[length - 1 : length])
        state.take_features(length - 2, VECTORS[length - 2 : length - 1])
        drafted(state)
        sizes.append(state.memory_bytes)
    assert sizes[40:] == sizes[40:41] * len(sizes[40:])
    positions = 2 * window
    assert sizes[-1] <= positions * 2 * 2 * 2 * 16 * 4  # layers, K and V, heads, numbers, bytes
    fresh = proposer.open(TOKENS[:99])
    fresh.take_features(0, VECTORS[:98])
    assert drafted(fresh) == drafted(state)
    assert fresh.memory_bytes <= sizes[-1]


def test_layers_that_see_everything_have_a_bound_too(
    proposer: DFlashProposer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CONTEXT_POSITIONS", 24)
    state = proposer.open(TOKENS[:300])
    for first in range(0, 299, 13):
        state.take_features(first, VECTORS[first : min(first + 13, 299)])
    assert state._context.end - state._context.first == 24
    # What is beyond the bound is as if it had never come.
    assert drafted(state) == drafted(whole(proposer, 300, first=299 - 24))
    assert drafted(whole(proposer, 300)) == drafted(state)


def test_vectors_that_run_ahead_for_ever_stay_bounded(
    proposer: DFlashProposer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CONTEXT_POSITIONS", 24)
    state = proposer.open(TOKENS[:1])
    for first in range(0, 390, 10):
        state.take_features(first, VECTORS[first : first + 10])
    assert state.features_end == 390
    assert len(state._waiting) == 24
    state.commit(TOKENS[1:391])
    assert drafted(state) == drafted(whole(proposer, 391, first=390 - 24))


@settings(deadline=None, max_examples=50)
@given(
    positions=st.integers(1, 40),
    steps=st.lists(st.tuples(st.sampled_from(["extend", "block", "restart"]), st.integers(0, 70))),
)
def test_the_context_cache_keeps_the_latest_in_order(
    positions: int, steps: list[tuple[str, int]]
) -> None:
    """Against a list."""
    block = 4
    cache = ContextCache((2, 1, 1), positions, block)
    model: list[float] = []
    end = 0
    for step, number in steps:
        if step == "restart":
            end += number
            model = []
            cache.restart(end)
        elif step == "extend":
            fresh = torch.arange(end, end + number, dtype=torch.float32)
            layered = torch.stack((fresh, fresh + 1000))[:, :, None]
            cache.extend(layered, layered + 100_000)
            model = [*model, *fresh.tolist()][-positions:]
            end += number
        else:
            cache.make_room(block)
            mine = torch.full((1, block, 1), -1.0)
            skipped = min(number, len(model))
            for layer in (1, 0):
                keys, values = cache.with_block(layer, cache.first + skipped, mine, mine - 1)
                kept = [value + 1000 * layer for value in model[skipped:]]
                assert keys.flatten().tolist() == [*kept, *[-1.0] * block]
                moved = [value + 100_000 for value in kept]
                assert values.flatten().tolist() == [*moved, *[-2.0] * block]
        assert (cache.end, cache.first) == (end, end - len(model))
        assert cache.memory_bytes <= (positions + max(positions // 4, block)) * 2 * 2 * 4


@settings(deadline=None)
@given(
    causal=st.booleans(),
    window=st.none() | st.integers(1, 20),
    first=st.integers(0, 30),
    context=st.integers(0, 30),
    rows=st.integers(1, 12),
)
def test_visible_keys_are_a_rule_about_positions(
    causal: bool, window: int | None, first: int, context: int, rows: int
) -> None:
    base = first + context
    visible = visible_keys(DraftLayerRule(causal, window), first, base, rows)
    assert first <= visible.first <= base
    for row in range(base, base + rows):
        for key in range(first, base + rows):
            distance = row - key
            seen = not (causal and distance < 0)
            if window is not None:
                seen = seen and (distance < window if causal else abs(distance) <= window)
            offered = key >= visible.first
            if offered and visible.mask is not None:
                offered = visible.mask[row - base, key - visible.first].item() == 0.0
            assert offered == seen, (row, key)


async def test_a_local_source_hands_over_the_vectors_since(proposer: DFlashProposer) -> None:
    known = 0
    asked = []

    def since(position: int) -> tuple[int, np.ndarray]:
        asked.append(position)
        return position, VECTORS[position:known]

    source = LocalDraftSource(proposer, features=since)
    assert not source.drafts_ahead
    known = 29
    assert (await source.draft(TOKENS[:30], (), 7)).token_ids == drafted(whole(proposer, 30))
    known = 33
    with pytest.raises(DraftFailed):
        await source.draft(TOKENS[:40], (), 7)
    known = 39
    assert (await source.draft(TOKENS[:40], (), 7)).token_ids == drafted(whole(proposer, 40))
    assert asked == [0, 29, 29], "what came with a failed draft is offered again"

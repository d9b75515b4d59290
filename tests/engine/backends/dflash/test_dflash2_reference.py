"""A drafter of version 2 on each back end against the formulae, number by number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from kakeya_fleet.engine.backends import load_dflash
from kakeya_fleet.engine.backends.dflash.draft_state import DFlashDraftState
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but, wide
from tests.support.dflash2_reference import ReferenceDraft, ReferenceDrafter

FULL, SLIDING = "full_attention", "sliding_attention"
BLOCK = 6
HEAD = {"enable_confidence_head": True, "confidence_head_with_markov": False}
HEAD_WITH_PREDECESSOR = HEAD | {"confidence_head_with_markov": True}
SHAPES: dict[str, dict[str, object]] = {
    "as published": {
        "layer_types": [SLIDING] * 2,
        "sliding_window": 9,
        "is_causal": False,
    },
    "groups of one": {"conv_group_size": 1},
    "one group": {"conv_group_size": 36, "selector_rank": 5},
    "odd groups": {"conv_group_size": 9, "conv_kernel_size": 3, "selector_rank": 7},
    "one tap": {"conv_kernel_size": 1},
    "as many taps as rows": {"conv_kernel_size": BLOCK, "conv_group_size": 3},
    "one candidate": {"selector_top_k": 1},
    "every token a candidate": {"selector_top_k": 96, "selector_rank": 1},
    "scaled and capped": {"output_multiplier": 0.196, "final_logit_softcapping": 1.5},
    "scaled embedding": {"input_embedding_scale": 3.0, "output_multiplier": 2.0},
    "causal": {"is_causal": True, "num_key_value_heads": 1},
    # Narrower than the block: the rows do not all see each other.
    "narrow": {"layer_types": [FULL, SLIDING], "sliding_window": 3, "is_causal": False},
    "narrow and causal": {"layer_types": [SLIDING, FULL], "sliding_window": 3},
    "confidence": HEAD | {"confidence_threshold": 0.7},
    "confidence with the token before": HEAD_WITH_PREDECESSOR | {"confidence_threshold": 0.75},
}
NAMES = ("as published", "odd groups", "confidence with the token before")
BACKENDS = ("torch", "mlx")
CASES = [(shape, backend) for backend in BACKENDS for shape in sorted(SHAPES)]
# Each part of the arithmetic once, and on each back end some of it.
KEPT = [
    ("odd groups", "torch"),
    ("one candidate", "torch"),
    ("narrow and causal", "torch"),
    ("scaled and capped", "torch"),
    ("confidence with the token before", "torch"),
    ("as published", "mlx"),
    ("scaled embedding", "mlx"),
    ("confidence", "mlx"),
]


@pytest.fixture(scope="module")
def target(random_checkpoint: Callable[..., Path]) -> ModelFolder:
    folder = random_checkpoint("Qwen3ForCausalLM", hidden_size=36, tie_word_embeddings=False)
    return ModelFolder(folder, "t")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    return str(request.param)


def loaded(
    folder: Path, target: ModelFolder, backend: str, dtype: str = "float32"
) -> DFlashProposer:
    proposer = load_dflash(ModelFolder(folder, "drafter"), target, backend=backend, dtype=dtype)
    assert isinstance(proposer, DFlashProposer)
    return proposer


def reference_of(folder: Path, target: ModelFolder) -> ReferenceDrafter:
    ends = load_file(target.path / "model.safetensors")
    return ReferenceDrafter(folder, ends["model.embed_tokens.weight"], ends["lm_head.weight"])


class Text:
    """Random tokens and features."""

    def __init__(self, proposer: DFlashProposer, seed: int) -> None:
        rng = np.random.default_rng(seed)
        spec = proposer.encoder.spec
        self.tokens = rng.integers(0, 96, 40).tolist()
        self.features = rng.standard_normal((40, len(spec.taps), spec.hidden_size), np.float32)

    def state(self, proposer: DFlashProposer, length: int) -> DFlashDraftState:
        """A history of `length` tokens, and all its vectors."""
        state = proposer.open(self.tokens[:length])
        state.take_features(0, proposer.encoder.encode(self.features[: length - 1]))
        return state


def assert_same(
    proposer: DFlashProposer, state: DFlashDraftState, expected: ReferenceDraft, last_token: int
) -> None:
    """Hidden states and logits to 1e-5 of their size, and the same tokens."""
    count = len(expected.path)
    assert state.propose((), count, 0).token_ids == expected.tokens
    model = proposer.model
    hidden = model.block_hidden(state._context, last_token, count + 1)
    for made, wanted in ((hidden, expected.hidden), (model.logits(hidden[1:]), expected.logits)):
        size = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(np.asarray(made), wanted, rtol=0, atol=2e-5 * size)


@pytest.mark.parametrize(
    ("shape", "backend"), all_wide_but(KEPT, CASES, several=True), indirect=["backend"]
)
def test_drafts_are_those_of_the_formulae(
    shape: str, backend: str, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    options = SHAPES[shape]
    folder = random_drafter(target.path, version=2, block_size=BLOCK, **options)
    proposer = loaded(folder, target, backend)
    reference = reference_of(folder, target)
    text = Text(proposer, seed=3)
    threshold = options.get("confidence_threshold", 0.0)
    assert isinstance(threshold, float)
    drafts, largest, cuts = set(), [], set()
    for length, count in ((1, 5), (2, 5), (14, 5), (27, 1), (27, 2), (27, 5)):
        last = text.tokens[length - 1]
        expected = reference.draft(text.features[: length - 1], last, count, threshold)
        assert_same(proposer, text.state(proposer, length), expected, last)
        drafts.add(expected.tokens)
        largest.append(tuple(expected.logits.argmax(1).tolist()) == expected.path)
        cuts.add(len(expected.tokens) - count)
    assert len(drafts) > 3, "the drafts must depend on the history for this to prove anything"
    assert all(largest) == (shape == "one candidate"), "the selector must change what is drafted"
    assert (len(cuts) > 1) == (threshold > 0.0), "the head must cut some blocks and leave others"


@pytest.mark.parametrize(
    ("with_predecessor", "backend"),
    [(False, "torch"), (True, "mlx"), wide(True, "torch"), wide(False, "mlx")],
    indirect=["backend"],
)
def test_a_head_cuts_before_the_first_row_that_it_does_not_trust(
    with_predecessor: bool, backend: str, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    """Just above and just below what rows are trusted; without a threshold nothing is cut."""
    head = HEAD | {"confidence_head_with_markov": with_predecessor}
    shape = {"version": 2, "block_size": BLOCK, "seed": 5}
    folder = random_drafter(target.path, **shape, **head)
    reference = reference_of(folder, target)
    whole = loaded(folder, target, backend)
    text = Text(whole, seed=6)
    expected = reference.draft(text.features[:19], text.tokens[19], BLOCK - 1, 0.0)
    assert text.state(whole, 20).propose((), BLOCK - 1, 0).token_ids == expected.path
    lengths = set()
    # The least, the most, and one between.
    for confidence in sorted(expected.confidences)[::2]:
        for threshold in (confidence - 1e-4, confidence + 1e-4):
            sure = [one >= threshold for one in expected.confidences]
            length = sure.index(False) if False in sure else len(sure)
            proposer = loaded(
                random_drafter(target.path, **shape, **head, confidence_threshold=threshold),
                target,
                backend,
            )
            draft = text.state(proposer, 20).propose((), BLOCK - 1, 0)
            assert draft.token_ids == expected.path[:length], threshold
            assert draft.forward_pass_count == 1
            lengths.add(length)
    assert {0, BLOCK - 1} <= lengths


@pytest.mark.parametrize("shape", all_wide_but(["odd groups"], NAMES))
def test_products_in_bfloat16_stay_close(
    shape: str, backend: str, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    folder = random_drafter(target.path, version=2, block_size=BLOCK, **SHAPES[shape])
    found = []
    for dtype in ("float32", "bfloat16"):
        proposer = loaded(folder, target, backend, dtype)
        assert proposer.info.dtype == dtype
        text = Text(proposer, seed=8)
        state = text.state(proposer, 30)
        found.append(
            np.asarray(proposer.model.block_hidden(state._context, text.tokens[29], BLOCK))
        )
        assert len(state.propose((), BLOCK - 1, 0).token_ids) <= BLOCK - 1
    error = np.linalg.norm(found[0] - found[1]) / np.linalg.norm(found[0])
    assert 0 < error < 0.1

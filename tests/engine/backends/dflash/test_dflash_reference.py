"""The drafter's forward against an independent implementation of the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator
from transformers.modeling_outputs import BaseModelOutputWithPast

from kakeya_fleet.engine.backends.dflash.draft_state import DFlashDraftState
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.torch_backend.dflash import load_dflash
from kakeya_fleet.engine.backends.torch_backend.dflash.target import TargetEnds, read_target
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but

BLOCK = 8
FULL, SLIDING = "full_attention", "sliding_attention"
ROPES: dict[str, dict[str, object]] = {
    "default": {"rope_theta": 10_000.0},
    "linear": {"rope_theta": 10_000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama3": {
        "rope_theta": 10_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "yarn": {
        "rope_theta": None,
        "rope_parameters": {
            "rope_theta": 500.0,
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}
KINDS: dict[str, dict[str, object]] = {
    "full": {},
    "sliding": {"layer_types": [SLIDING] * 3, "sliding_window": 11},
    "mixed": {"layer_types": [SLIDING, FULL, SLIDING], "sliding_window": 11},
    # Narrower than the block: the rows do not all see each other.
    "narrow": {"layer_types": [FULL, SLIDING, SLIDING], "sliding_window": 5},
}
CASES = [(kind, "default") for kind in KINDS] + [
    ("mixed", "linear"),
    ("full", "llama3"),
    ("full", "yarn"),
]
Drafting = Callable[[list[int], torch.Tensor, int], tuple[list[int], torch.Tensor]]
"""Drafts of one history: of its tokens, features of what was verified last, and how many accepted.

Gives the drafted tokens and their logits.
"""


class Reference:
    """The library's drafter with the same weights, and its candidate generator."""

    def __init__(self, folder: Path, ends: TargetEnds) -> None:
        entries = json.loads((folder / "config.json").read_bytes())
        rope = entries.get("rope_parameters") or {
            "rope_type": "default",
            "rope_theta": entries["rope_theta"],
            **(entries["rope_scaling"] or {}),
        }
        same: tuple[str, ...]
        same = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        same += ("num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings")
        same += ("layer_types", "block_size", "hidden_act")
        config = MuseGlimmerAssistantConfig(
            **{name: entries[name] for name in same},
            **entries["dflash_config"],
            sliding_window=entries["sliding_window"] or 4096,
            rope_parameters=rope,
        )
        self.model = MuseGlimmerAssistantModel(config).eval()
        renamed = {"fc.weight": "encoder.fc.weight"}
        renamed["hidden_norm.weight"] = "encoder.output_norm_enc.weight"
        weights = load_file(folder / "model.safetensors")
        state = {renamed.get(name, name): tensor for name, tensor in weights.items()}
        self.model.load_state_dict(state, strict=True)
        self.embedding = torch.nn.Embedding.from_pretrained(  # type: ignore[no-untyped-call]  # torch's own
            ends.embedding
        )
        vocabulary_size, hidden_size = ends.head.shape
        self.head = torch.nn.Linear(hidden_size, vocabulary_size, bias=False)
        self.head.weight = torch.nn.Parameter(ends.head)
        self.taps = config.target_layer_ids
        self.hidden: torch.Tensor | None = None
        self.model.register_forward_hook(self._keep)

    def _keep(self, _module: object, _inputs: object, output: BaseModelOutputWithPast) -> None:
        self.hidden = output.last_hidden_state[0]

    def session(self) -> Drafting:
        """Begins with a history."""
        options = SimpleNamespace(max_length=10_000, do_sample=False)
        generator = DFlashTokenCandidateGenerator(
            self.model, self.embedding, self.head, options, logits_processor=None
        )

        @torch.no_grad()
        def draft(
            tokens: list[int], features: torch.Tensor, accepted: int
        ) -> tuple[list[int], torch.Tensor]:
            states = {tap + 1: features[None, :, i] for i, tap in enumerate(self.taps)}
            ids, logits = generator.get_candidates(
                torch.tensor([tokens]),
                {
                    "position_ids": torch.arange(len(tokens))[None],
                    "attention_mask": torch.ones(1, len(tokens), dtype=torch.long),
                },
                SimpleNamespace(hidden_states=states),
                is_first_iteration=False,
                n_last_matches=accepted,
            )
            return ids[0, len(tokens) :].tolist(), logits[0]

        return draft


@pytest.fixture(scope="module")
def target(random_checkpoint: Callable[..., Path]) -> ModelFolder:
    return ModelFolder(
        random_checkpoint("Qwen3ForCausalLM", num_hidden_layers=3, tie_word_embeddings=False), "t"
    )


KEPT = [("narrow", "default"), ("mixed", "linear"), ("full", "yarn")]
"""Each kind of layer; angles as they are, all stretched alike and each by its own."""


@pytest.fixture(scope="module", params=all_wide_but(KEPT, CASES), ids="-".join)
def pair(
    request: pytest.FixtureRequest, target: ModelFolder, random_drafter: Callable[..., Path]
) -> tuple[DFlashProposer, Reference]:
    """A loaded drafter and the reference."""
    kind, rope = request.param
    options = KINDS[kind] | ROPES[rope]
    folder = random_drafter(
        target.path, num_hidden_layers=3, block_size=BLOCK, is_causal=False, **options
    )
    proposer = load_dflash(ModelFolder(folder, "drafter"), target)
    ends = read_target(target, proposer.model.config, torch.float32)
    return proposer, Reference(folder, ends)


class Text:
    """Random tokens and features, and how many drafted tokens each block accepts."""

    def __init__(self, proposer: DFlashProposer, seed: int) -> None:
        rng = np.random.default_rng(seed)
        spec = proposer.encoder.spec
        size = proposer.model.config.vocabulary_size
        self.tokens = rng.integers(0, size, 200).tolist()
        shape = (200, len(spec.taps), spec.hidden_size)
        self.features = rng.standard_normal(shape, dtype=np.float32)


def assert_same(
    proposer: DFlashProposer,
    state: DFlashDraftState,
    reference: Reference,
    expected_tokens: Sequence[int],
    expected_logits: torch.Tensor,
) -> None:
    """Hidden states and logits to 1e-5 of their size, and the same draft."""
    assert state.propose((), BLOCK - 1, 0).token_ids == tuple(expected_tokens)
    model = proposer.model
    assert state._last_token is not None
    hidden = model.block_hidden(state._context, state._last_token, BLOCK)
    assert reference.hidden is not None
    assert_close_for_size(hidden, reference.hidden)
    assert_close_for_size(model.logits(hidden[1:]), expected_logits)


def assert_close_for_size(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """To 1e-5 of the largest: how far sums in another order lie apart grows with what is summed."""
    size = float(expected.abs().max())
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * max(1.0, size))


def test_partly_accepted_blocks_give_the_drafts_of_the_reference(
    pair: tuple[DFlashProposer, Reference],
) -> None:
    proposer, reference = pair
    text = Text(proposer, seed=1)
    draft = reference.session()
    length = 20
    state = proposer.open(text.tokens[:length])
    state.take_features(0, proposer.encoder.encode(text.features[: length - 1]))
    first = torch.from_numpy(text.features[: length - 1])
    assert_same(proposer, state, reference, *draft(text.tokens[:length], first, 0))
    drafts = set()
    for accepted in (0, 3, 7, 1, 0, 5, 7, 2):
        # All rows of the verified block have features; those of rejected ones are cut off.
        verified = torch.from_numpy(text.features[length - 1 : length - 1 + BLOCK])
        length += accepted + 1
        tokens = text.tokens[:length]
        expected = draft(tokens, verified, accepted)
        state.commit(tokens[state.length :])
        known = state.features_end
        state.take_features(known, proposer.encoder.encode(text.features[known : length - 1]))
        assert_same(proposer, state, reference, *expected)
        drafts.add(tuple(expected[0]))
    assert len(drafts) > 1, "the drafts must depend on the context for this to prove anything"


def test_a_whole_context_at_once_gives_the_same(pair: tuple[DFlashProposer, Reference]) -> None:
    proposer, reference = pair
    text = Text(proposer, seed=2)
    for length in (2, 13, 90):
        state = proposer.open(text.tokens[:length])
        features = text.features[: length - 1]
        state.take_features(0, proposer.encoder.encode(features))
        draft = reference.session()(text.tokens[:length], torch.from_numpy(features), 0)
        assert_same(proposer, state, reference, *draft)


@pytest.mark.parametrize("is_causal", [True, None])
def test_causal_layers_see_what_their_rule_says(
    is_causal: bool | None, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    """The reference with the masks written out: |distance| and causality by hand."""
    window, length = 6, 30
    folder = random_drafter(
        target.path,
        num_hidden_layers=3,
        block_size=BLOCK,
        is_causal=is_causal,
        layer_types=[FULL, SLIDING, FULL],
        sliding_window=window,
    )
    proposer = load_dflash(ModelFolder(folder, "drafter"), target)
    reference = Reference(folder, read_target(target, proposer.model.config, torch.float32))
    text = Text(proposer, seed=4)
    state = proposer.open(text.tokens[:length])
    state.take_features(0, proposer.encoder.encode(text.features[: length - 1]))
    rows = torch.arange(length - 1, length - 1 + BLOCK)[:, None]
    keys = torch.arange(length - 1 + BLOCK)[None]
    causal = keys <= rows
    masks = {
        FULL: causal if is_causal else torch.ones_like(causal),
        SLIDING: causal & (rows - keys < window),
    }
    ids = torch.full((1, BLOCK), proposer.model.config.mask_token_id)
    ids[0, 0] = text.tokens[length - 1]
    with torch.no_grad():
        reference.model(
            noise_embeds=reference.embedding(ids),
            context_hidden_states=torch.from_numpy(text.features[: length - 1]).flatten(1)[None],
            attention_mask={kind: mask[None, None] for kind, mask in masks.items()},
        )
    hidden = proposer.model.block_hidden(state._context, text.tokens[length - 1], BLOCK)
    torch.testing.assert_close(hidden, reference.hidden, rtol=0, atol=1e-5)


def test_products_in_bfloat16_stay_close(
    target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    folder = ModelFolder(random_drafter(target.path), "drafter")
    exact, rounded = (load_dflash(folder, target, dtype=dtype) for dtype in ("float32", "bfloat16"))
    text = Text(exact, seed=5)
    found = []
    for proposer in (exact, rounded):
        state = proposer.open(text.tokens[:30])
        state.take_features(0, proposer.encoder.encode(text.features[:29]))
        found.append(proposer.model.block_hidden(state._context, text.tokens[29], 16))
    assert rounded.info.dtype == "bfloat16"
    assert exact.encoder.spec == rounded.encoder.spec
    error = (found[0] - found[1]).norm() / found[0].norm()
    assert 0 < error < 0.05

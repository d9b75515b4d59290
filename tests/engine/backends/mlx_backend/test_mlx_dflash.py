"""The DFlash drafter on MLX against the torch one: the same drafts out of the same folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mx = pytest.importorskip("mlx.core", reason="MLX is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

from kakeya_fleet.engine.backends import load_dflash, load_verifier  # noqa: E402
from kakeya_fleet.engine.backends.dflash import config as dflash_config  # noqa: E402
from kakeya_fleet.engine.backends.dflash.angles import Angles  # noqa: E402
from kakeya_fleet.engine.backends.dflash.config import read_config  # noqa: E402
from kakeya_fleet.engine.backends.dflash.draft_state import DFlashDraftState  # noqa: E402
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer  # noqa: E402
from kakeya_fleet.engine.backends.mlx_backend.dflash.context_cache import ContextCache  # noqa: E402
from kakeya_fleet.engine.backends.mlx_backend.dflash.target import read_target  # noqa: E402
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec  # noqa: E402
from kakeya_fleet.engine.contracts.verifier import Feed  # noqa: E402
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve  # noqa: E402
from tests.support.breadth import all_wide_but, wide  # noqa: E402
from tests.support.packed_checkpoint import quantize  # noqa: E402

FULL, SLIDING = "full_attention", "sliding_attention"
SCALED: dict[str, dict[str, object]] = {
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
    "yarn with an odd ramp": {
        "rope_theta": None,
        "rope_parameters": {
            "rope_theta": 10_000.0,
            "rope_type": "yarn",
            "factor": 16.0,
            "beta_fast": 8.0,
            "beta_slow": 2.0,
            "truncate": False,
            "mscale": 0.7,
            "mscale_all_dim": 0.9,
            "original_max_position_embeddings": 256,
        },
    },
    "proportional": {
        "rope_theta": None,
        "rope_parameters": {"rope_theta": 500.0, "rope_type": "proportional", "factor": 2.0},
    },
}
SHAPES: dict[str, dict[str, object]] = {
    "full": {},
    "causal": {"is_causal": True},
    "mixed": {"layer_types": [SLIDING, FULL, SLIDING], "sliding_window": 11, "is_causal": False},
    # Narrower than the block: the rows do not all see each other.
    "narrow": {"layer_types": [SLIDING] * 3, "sliding_window": 5, "is_causal": False},
    "scaled embedding": {"input_embedding_scale": 3.0},
    "one head of keys": {"num_key_value_heads": 1},
    "llama3": SCALED["llama3"],
    "version 2": {"version": 2},
    "version 2, cut": {
        "version": 2,
        "conv_kernel_size": 3,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "confidence_threshold": 0.5,
    },
}


def loaded(
    folder: ModelFolder, target: ModelFolder, backend: str = "mlx", dtype: str = "float32"
) -> DFlashProposer:
    proposer = load_dflash(folder, target, backend=backend, dtype=dtype)
    assert isinstance(proposer, DFlashProposer)
    return proposer


def both(folder: ModelFolder, target: ModelFolder) -> tuple[DFlashProposer, DFlashProposer]:
    """The drafter on torch and on MLX."""
    return loaded(folder, target, "torch"), loaded(folder, target, "mlx")


@pytest.fixture(scope="module")
def shipped() -> tuple[DFlashProposer, DFlashProposer]:
    return both(resolve("tiny-dflash"), resolve("tiny"))


@pytest.fixture(scope="module")
def target(random_checkpoint: Callable[..., Path]) -> ModelFolder:
    return ModelFolder(
        random_checkpoint("Qwen3ForCausalLM", num_hidden_layers=3, tie_word_embeddings=False), "t"
    )


def hidden_and_logits(
    proposer: DFlashProposer, state: DFlashDraftState
) -> tuple[np.ndarray, np.ndarray]:
    model = proposer.model
    rows = model.config.block_size
    assert state._last_token is not None
    hidden = model.block_hidden(state._context, state._last_token, rows)
    return np.asarray(hidden), np.asarray(model.logits(hidden))


def assert_same(
    proposers: Sequence[DFlashProposer], states: Sequence[DFlashDraftState], length: object
) -> tuple[int, ...]:
    """Same ids, and hidden states and logits to 1e-4 of their size."""
    drafts = [state.propose((), 63, 0).token_ids for state in states]
    assert drafts[0] == drafts[1]
    found = [hidden_and_logits(*pair) for pair in zip(proposers, states, strict=True)]
    for of_torch, of_mlx in zip(*found, strict=True):
        scale = max(1.0, np.abs(of_torch).max())
        assert np.abs(of_torch - of_mlx).max() < 1e-4 * scale, length
    return drafts[0]


def test_the_shipped_pair_drafts_the_same_on_both(
    shipped: tuple[DFlashProposer, DFlashProposer],
) -> None:
    """With the real verifier's hidden states, whose choices the drafts are about."""
    verifier = load_verifier(resolve("tiny"), backend="torch")
    encoder = shipped[0].encoder
    assert encoder.spec == shipped[1].encoder.spec
    random = np.random.default_rng(7)
    drafts = set()
    for seed in range(5):
        length = int(random.integers(2, 150))
        tokens = random.integers(1, 400, length).tolist()
        cache = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=64))
        states = [proposer.open(tokens[:1]) for proposer in shipped]
        for first in range(0, length - 1, 16):
            part = tokens[first : min(first + 16, length - 1)]
            fed = Feed(cache, part, want_logits=False, taps=encoder.spec.taps)
            features = verifier.forward_batch([fed])[0].features
            assert features is not None
            vectors = encoder.encode(features)
            for state in states:
                state.take_features(first, vectors)
                state.commit(tokens[first + 1 : first + 1 + len(part)])
        drafts.add(assert_same(shipped, states, (seed, length)))
    assert len(drafts) > 4, "the drafts must depend on the history for this to prove anything"


def test_what_it_is_is_the_same_but_for_the_back_end(
    shipped: tuple[DFlashProposer, DFlashProposer],
) -> None:
    infos = [proposer.info for proposer in shipped]
    assert (infos[0].backend, infos[1].backend) == ("torch", "mlx")
    differing = {name for name in infos[0].__slots__ if len({getattr(i, name) for i in infos}) > 1}
    assert differing == {"backend"}


@pytest.mark.parametrize(
    "shape",
    all_wide_but(["causal", "narrow", "llama3", "version 2, cut"], sorted(SHAPES)),
)
def test_drafters_of_other_shapes(
    shape: str, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    folder = random_drafter(target.path, num_hidden_layers=3, block_size=8, **SHAPES[shape])
    proposers = both(ModelFolder(folder, "drafter"), target)
    random = np.random.default_rng(3)
    tokens = random.integers(0, 96, 200).tolist()
    vectors = random.standard_normal((200, 32), dtype=np.float32)
    states = [proposer.open(tokens[:1]) for proposer in proposers]
    drafts = set()
    for length in (1, 2, 13, 61, 190):
        for state in states:
            state.commit(tokens[state.length : length])
            known = state.features_end
            state.take_features(known, vectors[known : length - 1])
        drafts.add(assert_same(proposers, states, length))
    assert len(drafts) > 1


@pytest.mark.parametrize("kind", sorted(SCALED))
def test_angles_are_those_of_the_library(
    kind: str, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    config = read_config(random_drafter(target.path, **SCALED[kind]))
    make = ROPE_INIT_FUNCTIONS[config.rotary.rope_parameters["rope_type"]]
    frequencies, scaling = make(config.rotary, torch.device("cpu"))
    angles = Angles(config)
    # The last ones lie beyond the first table.
    for first, count in ((0, 16), (63, 3), (700, 16), (1020, 16)):
        turns = torch.outer(torch.arange(first, first + count).float(), frequencies).repeat(1, 2)
        cos, sin = angles.of(first, count)
        sin = sin * np.where(np.arange(sin.shape[1]) < sin.shape[1] // 2, -1, 1)
        for mine, library in ((cos, turns.cos() * scaling), (sin, turns.sin() * scaling)):
            assert np.abs(mine - library.numpy()).max() < 1e-4, (first, count)


def test_products_in_bfloat16_stay_close(
    target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    folder = ModelFolder(random_drafter(target.path), "drafter")
    exact, rounded = (loaded(folder, target, dtype=dtype) for dtype in ("float32", "bfloat16"))
    random = np.random.default_rng(5)
    tokens = random.integers(0, 96, 30).tolist()
    found = []
    for proposer in (exact, rounded):
        state = proposer.open(tokens)
        state.take_features(0, random.standard_normal((29, 32)).astype(np.float32) * 0 + 0.1)
        found.append(hidden_and_logits(proposer, state)[0])
    assert rounded.info.dtype == "bfloat16"
    assert exact.encoder.spec == rounded.encoder.spec
    assert 0 < np.linalg.norm(found[0] - found[1]) / np.linalg.norm(found[0]) < 0.05


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 5)), max_size=8)
TOKENS = np.random.default_rng(11).integers(0, 96, 400).tolist()
VECTORS = np.random.default_rng(12).standard_normal((400, 32), dtype=np.float32)


@pytest.fixture(scope="module", params=[1, 2], ids="version {}".format)
def small(
    request: pytest.FixtureRequest, target: ModelFolder, random_drafter: Callable[..., Path]
) -> DFlashProposer:
    path = random_drafter(target.path, version=request.param, block_size=6)
    return loaded(ModelFolder(path, "drafter"), target)


def whole(proposer: DFlashProposer, length: int, first: int = 0) -> DFlashDraftState:
    state = proposer.open(TOKENS[:length])
    state.take_features(first, VECTORS[first : length - 1])
    return state


def drafted(state: DFlashDraftState) -> tuple[int, ...]:
    return state.propose((), 63, 0).token_ids


@settings(deadline=None, max_examples=8)
@given(length=st.integers(1, 120), prefix=st.integers(0, 120), steps=STEPS)
def test_only_tokens_and_vectors_count_not_how_they_came(
    small: DFlashProposer, length: int, prefix: int, steps: list[tuple[bool, int, int]]
) -> None:
    """Late, early, in pieces, twice, with drafts in between."""
    state = small.open(TOKENS[: min(prefix, length)])
    end = 0
    for tokens, count, back in [*steps, (True, length, 0), (False, length, 0)]:
        if tokens:
            state.commit(TOKENS[state.length : min(state.length + count, length)])
        else:
            first = max(0, end - back)
            end = max(end, min(first + count, length - 1))
            state.take_features(first, VECTORS[first : min(first + count, length - 1)])
        if state.length and end >= state.length - 1:
            assert drafted(state) == drafted(whole(small, state.length))


def test_a_gap_forgets_what_was_before(small: DFlashProposer) -> None:
    state = whole(small, 20)
    state.commit(TOKENS[20:90])
    state.take_features(60, VECTORS[60:89])
    assert drafted(state) == drafted(whole(small, 90, first=60))
    assert drafted(state) != drafted(whole(small, 90)), "the context must matter"


def test_sessions_know_nothing_of_each_other(small: DFlashProposer) -> None:
    alone = drafted(whole(small, 50))
    state, other = whole(small, 50), whole(small, 50)
    other.commit(TOKENS[60:70])
    other.take_features(49, VECTORS[100:110])
    drafted(other)
    assert drafted(state) == alone


@pytest.mark.parametrize("version", [1, 2])
def test_any_thread_goes_on_where_another_left_off(
    version: int, target: ModelFolder, random_drafter: Callable[..., Path]
) -> None:
    """Nothing waits to be computed in the stream of the thread that made it."""
    folder = ModelFolder(random_drafter(target.path, version=version, block_size=6), "drafter")
    expected = drafted(whole(loaded(folder, target), 90))
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        proposer = first.submit(loaded, folder, target).result()
        state = second.submit(whole, proposer, 50).result()
        first.submit(state.commit, TOKENS[50:90]).result()
        first.submit(state.take_features, 49, VECTORS[49:89]).result()
        assert second.submit(drafted, state).result() == expected
        assert first.submit(drafted, state).result() == expected
    assert drafted(state) == expected


def test_memory_does_not_grow_with_the_history(
    small: DFlashProposer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dflash_config, "CONTEXT_POSITIONS", 24)
    state = small.open(TOKENS[:1])
    sizes = []
    for length in range(2, 400, 7):
        state.commit(TOKENS[state.length : length])
        known = state.features_end
        state.take_features(known, VECTORS[known : length - 1])
        sizes.append(state.memory_bytes)
    assert max(sizes) == 2 * 2 * 2 * 30 * 16 * 4  # K and V, layers, heads, slots, numbers, bytes
    assert drafted(state) == drafted(whole(small, state.length, first=state.length - 25))


@settings(deadline=None, max_examples=30)
@given(
    positions=st.integers(1, 40),
    steps=st.lists(
        st.tuples(st.sampled_from(["extend", "read", "restart"]), st.integers(0, 70)), max_size=12
    ),
)
def test_the_context_cache_keeps_the_latest_in_order(
    positions: int, steps: list[tuple[str, int]]
) -> None:
    """Against a list."""
    cache = ContextCache((2, 1, 1), positions)
    model: list[int] = []
    end = 0
    for step, number in steps:
        if step == "restart":
            end += number
            model = []
            cache.restart(end)
        elif step == "extend":
            fresh = mx.arange(end, end + number, dtype=mx.float32)
            layered = mx.stack((fresh, fresh + 1000))[:, :, None]
            cache.extend(layered, layered + 100_000)
            model = [*model, *range(end, end + number)][-positions:]
            end += number
        else:
            skipped = min(number, len(model))
            for layer in (1, 0):
                keys, values = cache.layer(layer, cache.first + skipped)
                kept = [value + 1000 * layer for value in model[skipped:]]
                assert keys.flatten().tolist() == kept
                assert values.flatten().tolist() == [value + 100_000 for value in kept]
        assert (cache.end, cache.first) == (end, end - len(model))
        assert cache.memory_bytes <= (positions + -(-positions // 4)) * 2 * 2 * 4


@pytest.mark.parametrize("bits", [4, wide(8)])
def test_a_quantized_target_lends_its_packed_ends(
    bits: int, target: ModelFolder, random_drafter: Callable[..., Path], tmp_path: Path
) -> None:
    packed = ModelFolder(quantize(target.path, tmp_path / "packed", bits, 32), "packed")
    folder = ModelFolder(random_drafter(target.path, block_size=6), "drafter")
    small = loaded(folder, packed)
    ends = read_target(packed, small.model.config, mx.float32)
    hidden = mx.random.normal((3, 32))
    weights = mx.load(str(target.path / "model.safetensors"))
    for matrix, name in ((ends.embedding, "model.embed_tokens"), (ends.head, "lm_head")):
        near = mx.dequantize(
            *mx.quantize(weights[name + ".weight"], group_size=32, bits=bits),
            group_size=32,
            bits=bits,
        )
        assert matrix.weight.dtype == mx.uint32
        assert mx.allclose(matrix.row(17), near[17])
        assert mx.allclose(matrix.product(hidden), hidden @ near.T, atol=1e-5)
    assert small.info.target_weights_digest != loaded(folder, target).info.target_weights_digest
    assert len(drafted(whole(small, 20))) == 5

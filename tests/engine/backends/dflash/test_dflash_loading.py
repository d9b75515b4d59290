"""Every way in which a DFlash checkpoint can be wrong, and what is said of it."""

from __future__ import annotations

import importlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kakeya_fleet.engine.backends import BACKENDS
from kakeya_fleet.engine.backends.dflash.config import DraftLayerRule, read_config
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.dflash.tensors import expected_shapes
from kakeya_fleet.engine.backends.dflash.version_2 import (
    ConvolutionShape,
    SelectorShape,
    Version2,
)
from kakeya_fleet.engine.contracts.draft import ConditionedDraftState, Proposer
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    BadParameters,
    ModelNotFound,
    ModelUnusable,
    OutOfMemory,
    TrainedForAnother,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.loading import load_proposer

UNTIED = {"tie_word_embeddings": False}
ChangeConfig = Callable[..., None]
"""Of the drafter's config: entries by name, None removes; a dict merges."""
Edit = Callable[[dict[str, torch.Tensor]], object]
"""Of a drafter's tensors, in place."""


class Load(Protocol):
    """Loads the drafter in a folder for the target in another, on one of the back ends."""

    def __call__(
        self,
        folder: Path,
        target: Path,
        *,
        dtype: str = "float32",
        available_bytes: int | None = None,
    ) -> DFlashProposer: ...


@pytest.fixture(scope="module")
def target(random_checkpoint: Callable[..., Path]) -> Path:
    return random_checkpoint("Qwen3ForCausalLM", **UNTIED)


@pytest.fixture
def version() -> int:
    """Of the drafter; tests of version 2 are parametrised with it."""
    return 1


@pytest.fixture
def folder(version: int, target: Path, random_drafter: Callable[..., Path], tmp_path: Path) -> Path:
    """A whole drafter, to be spoiled."""
    return shutil.copytree(random_drafter(target, version=version), tmp_path / "drafter")


@pytest.fixture
def entries(folder: Path) -> ChangeConfig:
    """Changes the config: `entries(block_size=1)`."""

    def change(**changes: object) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_bytes())
        for name, value in changes.items():
            if value is None:
                config.pop(name, None)
            elif isinstance(value, dict) and isinstance(config.get(name), dict):
                merged = config[name] | value
                config[name] = {k: v for k, v in merged.items() if v is not None}
            else:
                config[name] = value
        path.write_text(json.dumps(config))

    return change


@pytest.fixture
def tensors(folder: Path) -> Callable[[Edit], None]:
    """Changes the tensors: `tensors(lambda weights: ...)`."""

    def change(edit: Edit) -> None:
        weights = load_file(folder / "model.safetensors")
        edit(weights)
        save_file(weights, folder / "model.safetensors")

    return change


@pytest.fixture(params=["torch", "mlx"])
def load(request: pytest.FixtureRequest) -> Load:
    if request.param == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    load_dflash = BACKENDS[request.param].drafters()

    def run(
        folder: Path, target: Path, *, dtype: str = "float32", available_bytes: int | None = None
    ) -> DFlashProposer:
        proposer = load_dflash(
            ModelFolder(folder, "drafter"),
            ModelFolder(target, "target"),
            dtype=dtype,
            available_bytes=available_bytes,
        )
        assert isinstance(proposer, DFlashProposer)
        return proposer

    return run


@pytest.mark.parametrize(
    ("version", "architecture"), [(1, "DFlashDraftModel v1"), (2, "DFlash2DraftModel v2")]
)
def test_what_a_whole_one_is(architecture: str, folder: Path, target: Path, load: Load) -> None:
    proposer = load(folder, target)
    info = proposer.info
    assert (info.model_id, info.kind) == ("drafter", "dflash")
    assert info.architecture == architecture
    assert info.weights_digest == weights_digest(folder)
    assert info.target_weights_digest == weights_digest(target)
    assert info.tokenizer_digest == tokenizer_digest(target)
    assert (info.vocabulary_size, info.context_length, info.block_size) == (96, 1024, 15)
    spec = proposer.encoder.spec
    assert (spec.taps, spec.hidden_size, spec.width) == ((0, 1), 32, 32)


def test_the_encoder_of_tensors_that_came_over_the_wire_is_the_same(
    folder: Path, target: Path, load: Load
) -> None:
    proposer = load(folder, target)
    weights = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_bytes())
    arrived = EncoderWeights(
        fc=weights["fc.weight"].numpy(),
        norm=weights["hidden_norm.weight"].numpy(),
        eps=config["rms_norm_eps"],
        taps=tuple(config["dflash_config"]["target_layer_ids"]),
    )
    encoder = ContextEncoder(arrived)
    assert encoder.spec == proposer.encoder.spec
    features = np.random.default_rng(0).standard_normal((5, 2, 32), dtype=np.float32)
    vectors = encoder.encode(features)
    made = torch.nn.functional.linear(torch.from_numpy(features).flatten(1), weights["fc.weight"])
    made = torch.nn.functional.rms_norm(made, (32,), weights["hidden_norm.weight"], 1e-6)
    np.testing.assert_allclose(vectors, made.numpy(), atol=1e-5)


# One reader of configs stands above the back ends.
@pytest.mark.parametrize("load", ["torch"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["DFlash2DraftModel", "DFlashDraftModel"]}, "is not a drafter"),
        ({"architectures": ["Qwen3DSparkModel"]}, "Qwen3DSparkModel is not a drafter"),
        ({"dflash_config": {"enable_confidence_head": True}}, "enable_confidence_head"),
        ({"dflash_config": {"selector_rank": 256}}, "version 2"),
        ({"conv_kernel_size": 2}, "version 2"),
        ({"dflash_config": {"shift_label": True}}, "shift_label"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "Qwen3ForCausalLM is not a drafter"),
        ({"architectures": None}, "no architecture"),
        ({"model_type": "llama"}, "model_type 'llama'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "chunked_attention"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "RoPE of type dynamic"),
    ],
    ids=str,
)
def test_another_architecture_is_refused_by_name(
    changes: dict[str, object],
    named: str,
    folder: Path,
    target: Path,
    entries: ChangeConfig,
    load: Load,
) -> None:
    entries(**changes)
    with pytest.raises(ArchitectureUnsupported, match=named):
        load(folder, target)


@pytest.mark.parametrize("load", ["torch"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, "no conv_kernel_size"),
        ({"dflash_config": {"target_layer_ids": None}}, "target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": []}}, "target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [0, 2]}}, "target_layer_ids has 2"),
        ({"dflash_config": {"target_layer_ids": [1, 1]}}, "twice"),
        ({"dflash_config": {"mask_token_id": None}}, "mask_token_id"),
        ({"dflash_config": {"mask_token_id": 96}}, "mask_token_id has 96"),
        ({"mask_token_id": 3}, "mask_token_id is 3 and"),
        ({"dflash_config": {"is_causal": 1}}, "is_causal"),
        ({"dflash_config": {"output_multiplier": -1.0}}, "output_multiplier"),
        ({"dflash_config": []}, "not an object"),
        ({"block_size": None}, "block_size"),
        ({"block_size": 1}, "no draft"),
        ({"num_target_layers": None}, "num_target_layers"),
        ({"num_key_value_heads": 3}, "4 heads share 3"),
        ({"head_dim": None}, "no head_dim"),
        ({"head_dim": 15}, "head_dim"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
        ({"rope_theta": None}, "rope_theta"),
        ({"layer_types": ["full_attention"]}, "layer"),
        ({"layer_types": ["sliding_attention"] * 2, "use_sliding_window": None}, "sliding_window"),
        ({"layer_types": ["sliding_attention"] * 2, "sliding_window": 4}, "use_sliding_window"),
    ],
    ids=str,
)
def test_a_config_that_cannot_be_is_refused(
    changes: dict[str, object],
    named: str,
    folder: Path,
    target: Path,
    entries: ChangeConfig,
    load: Load,
) -> None:
    entries(**changes)
    with pytest.raises(ModelUnusable, match=named):
        load(folder, target)


HEAD = {"enable_confidence_head": True, "confidence_head_with_markov": True}
SLIDING = {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": True}


@pytest.mark.parametrize("load", ["torch"], indirect=True)
@pytest.mark.parametrize("version", [2])
@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"dflash_config": {"conv_kernel_size": None}}, ModelUnusable, "no conv_kernel_size"),
        ({"dflash_config": {"conv_group_size": None}}, ModelUnusable, "no conv_group_size"),
        ({"dflash_config": {"selector_rank": None}}, ModelUnusable, "no selector_rank"),
        ({"dflash_config": {"selector_top_k": None}}, ModelUnusable, "no selector_top_k"),
        ({"selector_top_k": 8}, ModelUnusable, "selector_top_k is 8 and, in dflash_config, 16"),
        ({"dflash_config": {"conv_kernel_size": 0}}, ModelUnusable, "conv_kernel_size is 0"),
        ({"dflash_config": {"conv_kernel_size": True}}, ModelUnusable, "conv_kernel_size is True"),
        ({"dflash_config": {"conv_kernel_size": 2.0}}, ModelUnusable, "conv_kernel_size is 2.0"),
        ({"dflash_config": {"conv_kernel_size": 17}}, ModelUnusable, "17 is more than the block"),
        ({"dflash_config": {"conv_group_size": 5}}, ModelUnusable, "5 does not divide"),
        ({"dflash_config": {"conv_group_size": 64}}, ModelUnusable, "64 does not divide"),
        ({"dflash_config": {"selector_rank": -1}}, ModelUnusable, "selector_rank is -1"),
        ({"dflash_config": {"selector_top_k": "16"}}, ModelUnusable, "selector_top_k is '16'"),
        ({"dflash_config": {"selector_top_k": 97}}, ModelUnusable, "97 is more than the vocab"),
        ({"dflash_config": {"output_multiplier": 0}}, ModelUnusable, "output_multiplier"),
        ({"final_logit_softcapping": -2.0}, ModelUnusable, "final_logit_softcapping"),
        ({"dflash_config": {"confidence_threshold": 0.5}}, ModelUnusable, "is not true"),
        ({"enable_confidence_head": 1}, ModelUnusable, "enable_confidence_head is 1"),
        ({"enable_confidence_head": True}, ModelUnusable, "no confidence_head_with_markov"),
        (HEAD | {"confidence_head_with_markov": "yes"}, ModelUnusable, "markov is 'yes'"),
        (HEAD | {"confidence_threshold": 1.0}, ModelUnusable, "confidence_threshold is 1.0"),
        (HEAD | {"confidence_threshold": -0.1}, ModelUnusable, "confidence_threshold is -0.1"),
        (HEAD | {"confidence_threshold": float("nan")}, ModelUnusable, "confidence_threshold"),
        (HEAD | {"confidence_threshold": True}, ModelUnusable, "confidence_threshold is True"),
        (HEAD, WeightsMismatch, "missing: confidence_head"),
        (SLIDING | {"sliding_window": 1, "is_causal": False}, ModelUnusable, "no context"),
        ({"dflash_config": {"conv_kernel_size": 3}}, WeightsMismatch, "wrong shape"),
        ({"dflash_config": {"runtime_block_size": 5}}, ArchitectureUnsupported, "runtime_block"),
        ({"architectures": ["DFlashDraftModel"]}, ArchitectureUnsupported, "version 2, DFlash2"),
        ({"model_type": "llama"}, ArchitectureUnsupported, "DFlash2DraftModel with model_type"),
        ({"quantization_config": {"bits": 4}}, ArchitectureUnsupported, "quantization_config"),
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            ArchitectureUnsupported,
            "DFlash2DraftModel with RoPE of type dynamic",
        ),
    ],
    ids=str,
)
def test_version_2_says_what_is_wrong_with_its_own_entries(
    changes: dict[str, object],
    error: type[ModelUnusable],
    named: str,
    folder: Path,
    target: Path,
    entries: ChangeConfig,
    load: Load,
) -> None:
    entries(**changes)
    with pytest.raises(error, match=named):
        load(folder, target)


def test_the_published_config_is_read_as_it_stands(tmp_path: Path) -> None:
    """What z-lab/Qwen3.8-27B-DFlash2 has, and tensors of the names and shapes of its file."""
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    config = read_config(tmp_path)
    assert (config.block_size, config.layer_count, config.taps) == (8, 5, (5, 19, 33, 47, 61))
    assert set(config.rules) == {DraftLayerRule(causal=False, window=2047)}
    assert config.version_2 == Version2(
        ConvolutionShape(taps=2, group_size=16),
        SelectorShape(rank=256, top_k=16, multiplier=1.0, softcap=None),
        confidence=None,
    )
    shapes = expected_shapes(config)
    assert len(shapes) == 81
    assert sum(math.prod(shape) for shape in shapes.values()) == 1_924_404_480
    own = {
        "layers.4.attention_conv.base_kernel": (2, 2, 5120),
        "layers.4.attention_conv.kernel_projection.weight": (1280, 5120),
        "layers.4.mlp_conv.base_kernel": (2, 2, 5120),
        "layers.4.mlp_conv.kernel_projection.weight": (1280, 5120),
        "candidate_selector.hidden_projection.weight": (256, 5120),
        "candidate_selector.predecessor_codebook": (248_320, 256),
        "candidate_selector.successor_codebook": (248_320, 256),
    }
    assert own.items() <= shapes.items()


PUBLISHED = {
    "architectures": ["DFlash2DraftModel"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dflash_config": {
        "block_size": 8,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "mask_token_id": 248_070,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [5, 19, 33, 47, 61],
    },
    "dtype": "bfloat16",
    "eos_token_id": 248_044,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 17_408,
    "is_causal": False,
    "layer_types": ["sliding_attention"] * 5,
    "max_position_embeddings": 262_144,
    "max_window_layers": 5,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "num_target_layers": 64,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10_000_000, "rope_type": "default"},
    "sliding_window": 2048,
    "tie_word_embeddings": False,
    "vocab_size": 248_320,
}


@pytest.mark.parametrize("load", ["torch"], indirect=True)
@pytest.mark.parametrize("text", ["", "[1]", '{"archi'])
def test_a_config_that_is_none(text: str, folder: Path, target: Path, load: Load) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelUnusable, match=r"config\.json"):
        load(folder, target)


def remove(name: str) -> Edit:
    return lambda weights: weights.pop(name)


def put(name: str, tensor: torch.Tensor) -> Edit:
    return lambda weights: weights.update({name: tensor})


EDITS: list[tuple[Edit, tuple[str, str]]] = [
    (remove("fc.weight"), ("missing", "fc.weight")),
    (remove("layers.1.self_attn.k_norm.weight"), ("missing", "layers.1.self_attn.k_norm")),
    # A checkpoint that brings an embedding of its own is no v1.
    (put("embed_tokens.weight", torch.zeros(96, 32)), ("unexpected", "embed_tokens")),
    (put("lm_head.weight", torch.zeros(96, 32)), ("unexpected", "lm_head")),
    (put("layers.2.mlp.up_proj.weight", torch.zeros(64, 32)), ("unexpected", "layers.2")),
    (put("layers.0.self_attn.q_proj.bias", torch.zeros(64)), ("unexpected", "bias")),
    (put("hidden_norm.weight", torch.ones(31)), ("wrong_shape", "hidden_norm")),
    (put("fc.weight", torch.zeros(32, 96)), ("wrong_shape", "fc.weight")),
    (put("norm.weight", torch.ones(32, dtype=torch.int32)), ("not_floating_point", "norm")),
]
EDITS_2: list[tuple[Edit, tuple[str, str]]] = [
    (
        remove("candidate_selector.successor_codebook"),
        ("missing", "candidate_selector.successor_codebook"),
    ),
    (remove("layers.1.mlp_conv.base_kernel"), ("missing", "layers.1.mlp_conv.base_kernel")),
    (
        put("layers.0.attention_conv.kernel_projection.bias", torch.zeros(32)),
        ("unexpected", "kernel_projection.bias"),
    ),
    # The config knows of no such head.
    (put("confidence_head.proj.weight", torch.zeros(1, 32)), ("unexpected", "confidence")),
    (
        put("layers.0.attention_conv.base_kernel", torch.zeros(2, 32, 2)),
        ("wrong_shape", "base_kernel"),
    ),
    (
        put("candidate_selector.predecessor_codebook", torch.zeros(8, 96)),
        ("wrong_shape", "predecessor_codebook"),
    ),
]
"""Of a drafter of version 2."""


@pytest.mark.parametrize(
    ("version", "edit", "metadata"),
    [*((1, *edit) for edit in EDITS), *((2, *edit) for edit in EDITS_2)],
)
def test_each_tensor_is_accounted_for(
    edit: Edit,
    metadata: tuple[str, str],
    folder: Path,
    target: Path,
    tensors: Callable[[Edit], None],
    load: Load,
) -> None:
    tensors(edit)
    with pytest.raises(WeightsMismatch) as caught:
        load(folder, target)
    assert metadata[1] in caught.value.metadata[metadata[0]]


@pytest.mark.parametrize("version", [2])
@pytest.mark.parametrize(
    "name", ["layers.1.mlp_conv.base_kernel", "candidate_selector.predecessor_codebook"]
)
def test_numbers_of_version_2_that_are_not_finite_are_refused(
    name: str, folder: Path, target: Path, tensors: Callable[[Edit], None], load: Load
) -> None:
    tensors(lambda weights: weights[name][1].fill_(float("inf")))
    with pytest.raises(WeightsMismatch, match=f"not finite: {name}"):
        load(folder, target)


def test_numbers_that_are_not_finite_are_refused(
    folder: Path, target: Path, tensors: Callable[[Edit], None], load: Load
) -> None:
    tensors(lambda weights: weights["layers.0.mlp.up_proj.weight"][3].fill_(float("nan")))
    with pytest.raises(WeightsMismatch, match=r"not finite: layers\.0\.mlp\.up_proj"):
        load(folder, target)


def test_a_file_that_breaks_off_is_refused(folder: Path, target: Path, load: Load) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsMismatch, match="truncated"):
        load(folder, target)
    path.unlink()
    with pytest.raises(WeightsMismatch, match=r"no model\.safetensors"):
        load(folder, target)


def test_too_little_memory_is_said_before_weights_are_read(
    folder: Path, target: Path, load: Load
) -> None:
    with pytest.raises(OutOfMemory):
        load(folder, target, available_bytes=100_000)
    with pytest.raises(BadParameters, match="float8"):
        load(folder, target, dtype="float8")


@pytest.mark.parametrize(
    ("config", "entry"),
    [
        ({"num_hidden_layers": 3}, "num_target_layers"),
        ({"hidden_size": 48}, "hidden_size"),
        ({"vocab_size": 112}, "vocab_size"),
    ],
    ids=str,
)
def test_a_target_of_another_shape_is_refused(
    config: dict[str, int],
    entry: str,
    folder: Path,
    random_checkpoint: Callable[..., Path],
    load: Load,
) -> None:
    with pytest.raises(TrainedForAnother, match=entry) as caught:
        load(folder, random_checkpoint("Qwen3ForCausalLM", **UNTIED, **config))
    assert caught.value.metadata["entry"] == entry


def drafted(proposer: Proposer) -> tuple[int, ...]:
    state = proposer.open([5, 6])
    assert isinstance(state, ConditionedDraftState)
    assert proposer.encoder is not None
    features = np.ones((1, 2, 32), np.float32)
    state.take_features(0, proposer.encoder.encode(features))
    return state.propose((), 15, 0).token_ids


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
        ("Qwen3ForCausalLM", UNTIED | {"shards": True}),
        ("Gemma3ForConditionalGeneration", UNTIED),
        ("Qwen3_5ForConditionalGeneration", UNTIED),
    ],
    ids=str,
)
def test_the_target_may_be_tied_sharded_or_of_several_modalities(
    architecture: str,
    options: dict[str, bool],
    random_checkpoint: Callable[..., Path],
    random_drafter: Callable[..., Path],
    load: Load,
) -> None:
    target = random_checkpoint(architecture, **options)
    taps = {"mask_token_id": 95, "target_layer_ids": [0, 1]}
    folder = random_drafter(target, dflash_config=taps)
    ends = {}
    for path in target.glob("*.safetensors"):
        for name, tensor in load_file(path).items():
            if name.endswith(("embed_tokens.weight", "lm_head.weight")):
                ends[name.rsplit(".", 2)[-2]] = tensor
    proposer = load(folder, target)
    model = proposer.model
    for token in (0, 17, 95):
        (found,) = np.asarray(model._embedded(token, 1))
        assert np.array_equal(found, ends["embed_tokens"][token].numpy())
    hidden = np.random.default_rng(0).standard_normal((4, 32), np.float32)
    head = ends.get("lm_head", ends["embed_tokens"]).numpy()
    if proposer.info.backend == "mlx":
        made = np.asarray(model.logits(importlib.import_module("mlx.core").array(hidden)))
    else:
        made = model.logits(torch.from_numpy(hidden)).numpy()
    np.testing.assert_allclose(made, hidden @ head.T, atol=1e-4, rtol=1e-4)


def test_only_the_ends_of_the_target_are_needed(
    folder: Path, target: Path, tmp_path: Path, load: Load
) -> None:
    """Its other tensors are not read, and so may be missing."""
    bare = shutil.copytree(target, tmp_path / "bare")
    weights = load_file(bare / "model.safetensors")
    names = ("model.embed_tokens.weight", "lm_head.weight")
    save_file({name: weights[name] for name in names}, bare / "model.safetensors")
    assert drafted(load(folder, bare)) == drafted(load(folder, target))
    save_file({names[0]: weights[names[0]]}, bare / "model.safetensors")
    with pytest.raises(WeightsMismatch, match=r"missing: lm_head\.weight"):
        load(folder, bare)


def test_a_name_with_its_target_and_a_manifest(folder: Path, target: Path) -> None:
    by_manifest = load_proposer(str(folder))
    (folder / "training.json").unlink()
    named = load_proposer(f"{folder}@{target}")
    assert by_manifest.info == named.info
    assert named.model_id == "drafter"
    assert drafted(by_manifest) == drafted(named)


def test_without_a_target_it_is_refused_with_the_mend(folder: Path) -> None:
    (folder / "training.json").unlink()
    with pytest.raises(ModelUnusable, match=r"proposer=drafter@TARGET.*training\.json"):
        load_proposer(str(folder))
    (folder / "training.json").write_text('{"run": {"seed": 1}}')
    with pytest.raises(ModelUnusable, match="@TARGET"):
        load_proposer(str(folder))


def test_a_drafter_trained_for_another_is_named_as_such(
    folder: Path, target: Path, random_checkpoint: Callable[..., Path]
) -> None:
    other = random_checkpoint("Qwen3ForCausalLM", seed=9, **UNTIED)
    with pytest.raises(TrainedForAnother) as caught:
        load_proposer(f"{folder}@{other}")
    said = caught.value.metadata
    assert said["trained_digest"] == weights_digest(target)
    assert said["target_digest"] == weights_digest(other)
    assert weights_digest(target)[:16] in str(caught.value)
    assert weights_digest(other)[:16] in str(caught.value)

    manifest = folder / "training.json"
    trained = json.loads(manifest.read_bytes())["target"]
    manifest.write_text(json.dumps({"target": trained | {"tokenizer_digest": "0" * 64}}))
    with pytest.raises(TrainedForAnother, match="tokenizer_digest"):
        load_proposer(str(folder))


@pytest.mark.parametrize(
    "text", ["[]", '{"target": 3}', '{"target": {"model_id": 7}}', '{"targ'], ids=str
)
def test_a_broken_manifest_is_refused(text: str, folder: Path) -> None:
    (folder / "training.json").write_text(text)
    with pytest.raises(ModelUnusable, match=r"training\.json"):
        load_proposer(str(folder))


def test_a_drafter_in_disguise_is_never_loaded_as_a_language_model(
    folder: Path, target: Path, entries: ChangeConfig
) -> None:
    entries(architectures=["Qwen3ForCausalLM"])
    with pytest.raises(ArchitectureUnsupported, match="not a drafter"):
        load_proposer(f"{folder}@{target}")


def test_a_lookup_takes_no_target() -> None:
    with pytest.raises(ModelUnusable, match=r"ngram is no DFlash drafter.*leave out @tiny"):
        load_proposer("ngram@tiny")


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(ModelNotFound, match="there is: ngram") as caught:
        load_proposer("tiny-dflahs@tiny")
    assert caught.value.metadata["model_id"] == "tiny-dflahs"

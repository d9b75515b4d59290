"""Masked models from folders: what is served, predicted alike, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
import torch
import transformers
from safetensors.torch import load_file

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion import load_masked_diffusion
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.declaration import read_declaration
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.model import MaskedModel
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.proposer import (
    MaskedDiffusionProposer,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.soundness import check_soundness
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    BadParameters,
    ModelNotFound,
    ModelUnusable,
    OutOfMemory,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.train.tiny_masked import (
    DECODERS,
    ENCODERS,
    MASK,
    VOCABULARY_SIZE,
    rewrite_weights,
    save_masked_checkpoint,
    write_config,
)
from tests.support.breadth import all_wide_but

IDS = torch.tensor([[7, 30, MASK, 2, 61, 60, MASK, 9, 9, MASK, 44, 5, 80, 81, 12, 3]])
BERT_EMBEDDING = "bert.embeddings.word_embeddings.weight"


class Options(TypedDict, total=False):
    """What `load_masked_diffusion` may be told."""

    dtype: str
    window: int
    step_count: int
    confidence_threshold: float
    available_bytes: int


def load(folder: Path, **options: Unpack[Options]) -> MaskedDiffusionProposer:
    return load_masked_diffusion(ModelFolder(folder, "masked"), **options)


def predicted(folder: Path, rows: Sequence[int]) -> torch.Tensor:
    """The loaded model's log-probabilities of `rows`."""
    return load(folder)._model.log_probabilities(IDS, rows)[0]


def expected(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of all rows, the mask excluded."""
    logits = logits[0].float().clone()
    logits[:, MASK] = -torch.inf
    return logits.log_softmax(-1)


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    known = other.isfinite()
    torch.testing.assert_close(one[known], other[known], rtol=0, atol=2e-5)
    assert (one[~known] == other[~known]).all()


@pytest.mark.parametrize(
    "architecture", all_wide_but(["BertForMaskedLM", "ModernBertForMaskedLM"], sorted(ENCODERS))
)
def test_encoders_predict_what_the_library_predicts(tmp_path: Path, architecture: str) -> None:
    folder = save_masked_checkpoint(tmp_path, architecture)
    model = getattr(transformers, architecture).from_pretrained(folder).eval()
    with torch.inference_mode():
        whole = expected(model(input_ids=IDS).logits)
    close(predicted(folder, range(16)), whole)
    close(predicted(folder, [9, 2]), whole[[9, 2]])


@pytest.mark.parametrize(
    "architecture", all_wide_but(["DreamModel", "Qwen3ForCausalLM"], sorted(DECODERS))
)
def test_decoders_predict_with_attention_to_all_positions(
    tmp_path: Path, architecture: str
) -> None:
    """The reference is the library's causal class under a mask that hides nothing."""
    folder = save_masked_checkpoint(tmp_path / "model", architecture)
    (folder / "modeling_dream.py").write_text("raise SystemExit", encoding="utf-8")
    class_name, _ = DECODERS[architecture]
    model_class = getattr(transformers, class_name)
    entries = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config = model_class.config_class.from_dict(
        {name: value for name, value in entries.items() if name not in ("model_type", "is_causal")}
    )
    assert config.rope_parameters["rope_theta"] == 5000.0
    model = model_class(config).eval()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    with torch.inference_mode():
        logits = model(input_ids=IDS, attention_mask=torch.zeros(1, 1, 16, 16)).logits
    whole = expected(logits)
    close(predicted(folder, range(16)), whole)
    close(predicted(folder, [15, 0]), whole[[15, 0]])
    assert read_declaration(folder).prediction_shift == (architecture == "DreamModel")


def llada_logits(weights: Mapping[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """LLaDA's forward from its description, on its own names: 4 heads, 2 of keys, of 8."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weights[name]

    positions = torch.arange(len(ids))[:, None]
    angles = positions * 5000.0 ** -(torch.arange(0, 8, 2) / 8)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x[..., :4], x[..., 4:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    x = weights["model.transformer.wte.weight"][ids]
    for block in range(2):
        p = f"model.transformer.blocks.{block}."
        h = norm(x, p + "attn_norm.weight")
        q, k, v = (
            (h @ weights[f"{p}{name}_proj.weight"].T).view(len(ids), -1, 8).transpose(0, 1)
            for name in "qkv"
        )
        k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        attention = (rotate(q) @ rotate(k).transpose(1, 2) / 8**0.5).softmax(-1) @ v
        x = x + attention.transpose(0, 1).reshape(len(ids), 32) @ weights[p + "attn_out.weight"].T
        h = norm(x, p + "ff_norm.weight")
        gate = torch.nn.functional.silu(h @ weights[p + "ff_proj.weight"].T)
        x = x + (gate * (h @ weights[p + "up_proj.weight"].T)) @ weights[p + "ff_out.weight"].T
    return norm(x, "model.transformer.ln_f.weight") @ weights["model.transformer.ff_out.weight"].T


def test_llada_is_llama_under_its_own_names(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "LLaDAModelLM")
    proposer = load(folder)
    assert proposer.info.architecture == "LLaDAModelLM"
    assert (proposer.info.context_length, proposer.info.prediction_shift) == (80, 0)
    whole = expected(llada_logits(load_file(folder / "model.safetensors"), IDS[0])[None])
    close(predicted(folder, range(16)), whole)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("block_type", "sequential"), ("alibi", True), ("include_bias", True), ("clip_qkv", 8.0)],
)
def test_llada_that_is_not_llama_is_refused_by_the_entry(
    tmp_path: Path, entry: str, value: str | bool | float
) -> None:
    folder = save_masked_checkpoint(tmp_path, "LLaDAModelLM", seed=0, **{entry: value})
    with pytest.raises(ArchitectureUnsupported, match=entry):
        load(folder)


def test_heads_of_other_tasks_and_the_oldest_names_are_no_mismatch(tmp_path: Path) -> None:
    """As the first BERT checkpoints are stored."""
    folder = save_masked_checkpoint(tmp_path, "BertForMaskedLM")
    before = predicted(folder, range(16))
    weights = load_file(folder / "model.safetensors")
    renamed = {
        name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        )
        for name in weights
    }
    rewrite_weights(
        folder,
        dict.fromkeys(weights)
        | {renamed[name]: tensor for name, tensor in weights.items()}
        | {
            "bert.pooler.dense.weight": torch.ones(32, 32),
            "cls.seq_relationship.weight": torch.ones(2, 32),
            "bert.embeddings.position_ids": torch.arange(80)[None],
        },
    )
    assert any(name.endswith("gamma") for name in load_file(folder / "model.safetensors"))
    assert torch.equal(predicted(folder, range(16)), before)


@pytest.mark.parametrize(
    ("architecture", "changed", "problem"),
    [
        ("BertForMaskedLM", {BERT_EMBEDDING: None}, "missing"),
        ("BertForMaskedLM", {"bert.extra.weight": torch.ones(3)}, "unexpected"),
        ("BertForMaskedLM", {BERT_EMBEDDING: torch.ones(95, 32)}, "wrong shape"),
        ("BertForMaskedLM", {BERT_EMBEDDING: torch.full((96, 32), torch.nan)}, "not finite"),
        ("BertForMaskedLM", {"cls.predictions.decoder.weight": torch.ones(96, 32)}, "differ"),
        ("DreamModel", {"lm_head.weight": None}, "missing: lm_head.weight"),
        ("DreamModel", {"model.layers.0.self_attn.q_proj.bias": None}, "missing"),
        ("Qwen3ForCausalLM", {"model.layers.2.mlp.up_proj.weight": torch.ones(2)}, "unexpected"),
        ("LLaDAModelLM", {"model.transformer.blocks.1.ff_proj.weight": None}, "gate_proj"),
        ("LLaDAModelLM", {"model.transformer.blocks.0.q_norm.weight": torch.ones(8)}, "q_norm"),
    ],
)
def test_weights_that_are_not_the_config_s_are_refused(
    tmp_path: Path, architecture: str, changed: dict[str, torch.Tensor | None], problem: str
) -> None:
    folder = save_masked_checkpoint(tmp_path, architecture)
    rewrite_weights(folder, changed)
    with pytest.raises(WeightsMismatch, match=problem):
        load(folder)


def test_a_stored_copy_of_a_tied_tensor_is_welcome(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "BertForMaskedLM")
    before = predicted(folder, [2])
    same = load_file(folder / "model.safetensors")[BERT_EMBEDDING].clone()
    rewrite_weights(folder, {"cls.predictions.decoder.weight": same})
    assert torch.equal(predicted(folder, [2]), before)


def test_weights_that_break_off_are_refused(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "Qwen3ForCausalLM")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsMismatch, match="truncated"):
        load(folder)


def test_memory_is_asked_for_before_weights_are_read(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "BertForMaskedLM")
    with pytest.raises(OutOfMemory, match="10,000 are available"):
        load(folder, available_bytes=10_000)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"is_causal": None}, "causal, no masked diffusion model"),
        ({"is_causal": True}, "causal, no masked diffusion model"),
        ({"architectures": ["Qwen3Model"]}, "Qwen3Model is not served"),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"model_type": "bart", "architectures": ["BartForConditionalGeneration"]}, "decoder"),
        ({"model_type": "bert", "architectures": ["BertModel"]}, "BertForMaskedLM is"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "dynam"),
    ],
)
def test_what_is_no_bidirectional_masked_model_is_refused_by_name(
    tmp_path: Path, entries: dict[str, object], reason: str
) -> None:
    folder = save_masked_checkpoint(tmp_path, "Qwen3ForCausalLM", seed=0, **entries)
    with pytest.raises(ArchitectureUnsupported, match=reason):
        load(folder)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"prediction_shift": 2}, "prediction_shift is 2"),
        ({"prediction_shift": "1"}, "prediction_shift"),
        ({"step_count": -1}, "step_count"),
        ({"mask_token_id": 96}, "outside the vocabulary"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "heads share"),
        ({"hidden_act": "none such"}, "none such"),
    ],
)
def test_a_broken_config_says_what_is_broken(
    tmp_path: Path, entries: dict[str, object], reason: str
) -> None:
    folder = save_masked_checkpoint(tmp_path, "Qwen3ForCausalLM")
    path = folder / "config.json"
    write_config(folder, json.loads(path.read_text(encoding="utf-8")) | entries)
    with pytest.raises(ModelUnusable, match=reason):
        load(folder)


def test_without_a_config_there_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="there is no"):
        load(tmp_path)


def test_the_mask_is_the_config_s_or_the_tokenizer_s_or_the_model_is_refused(
    tmp_path: Path,
) -> None:
    folder = save_masked_checkpoint(tmp_path, "BertForMaskedLM", mask_token_id=None)
    with pytest.raises(ModelUnusable, match="set mask_token_id"):
        load(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["added_tokens"] = [{"id": 90, "content": "[MASK]", "special": True}]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    assert load(folder).info.mask_token_id == 90
    for mask in ("t17", {"content": "t17"}):
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"mask_token": mask}), encoding="utf-8"
        )
        assert load(folder).info.mask_token_id == 17


def test_positions_that_a_family_keeps_for_padding_do_not_count(tmp_path: Path) -> None:
    """RoBERTa's first position has the number of the padding token and one: 2."""
    assert load(save_masked_checkpoint(tmp_path, "RobertaForMaskedLM")).info.context_length == 78


def test_a_model_that_is_causal_after_all_is_found_out(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "Qwen3ForCausalLM")
    declaration = read_declaration(folder)
    config = transformers.Qwen3Config.from_pretrained(folder)
    config.is_causal = True
    causal = transformers.Qwen3ForCausalLM(config).eval()
    with pytest.raises(ArchitectureUnsupported, match="causal"):
        check_soundness("it", MaskedModel(causal, declaration), 64)


def test_positions_that_the_model_does_not_have_are_found_out(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "BertForMaskedLM")
    model = load(folder)._model
    with pytest.raises(ArchitectureUnsupported, match="81 positions"):
        check_soundness("it", model, 81)


def test_it_says_what_it_is(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "DreamModel", step_count=3)
    info = load(folder, dtype="bfloat16", window=40).info
    assert (info.model_id, info.kind, info.architecture) == (
        "masked",
        "masked_diffusion",
        "DreamModel",
    )
    assert (info.vocabulary_size, info.context_length) == (VOCABULARY_SIZE, 80)
    assert (info.block_size, info.window, info.dtype, info.backend) == (39, 40, "bfloat16", "torch")
    assert (info.step_count, info.prediction_shift, info.shift_checked) == (3, 1, False)
    assert len(info.weights_digest) == len(info.tokenizer_digest) == 64
    assert info.target_weights_digest == ""
    assert load(folder, step_count=5).info.step_count == 5


@pytest.mark.parametrize(
    "options",
    [{"window": 1}, {"step_count": 0}, {"confidence_threshold": 0.0}, {"dtype": "float64"}],
)
def test_parameters_outside_their_range_are_refused(tmp_path: Path, options: Options) -> None:
    with pytest.raises(BadParameters):
        load(tmp_path, **options)

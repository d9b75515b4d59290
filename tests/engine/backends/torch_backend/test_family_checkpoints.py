"""Checkpoints with more than a decoder: their text part is served, every tensor accounted for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.families import FAMILIES
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import ArchitectureUnsupported, WeightsMismatch
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but, wide

WRAPPED = sorted(name for name in FAMILIES if name.endswith("ForConditionalGeneration"))
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(60)]
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
LAYER = {
    "Gemma3ForConditionalGeneration": "language_model.model.layers.1.",
    "Gemma4ForConditionalGeneration": "model.language_model.layers.1.",
    "Qwen3_5ForConditionalGeneration": "model.language_model.layers.1.",
}
OTHER = {
    "Gemma3ForConditionalGeneration": "vision_tower.",
    "Gemma4ForConditionalGeneration": "model.audio_tower.",
    "Qwen3_5ForConditionalGeneration": "model.visual.",
}


def test_a_familys_classes_are_the_librarys_of_its_name() -> None:
    for name, family in FAMILIES.items():
        config_class = transformers.CONFIG_MAPPING[family.model_type]
        assert getattr(transformers, name).config_class is config_class
        assert hasattr(transformers, family.text_model), name


# Its text lies where others' does not; theirs has one place.
KEPT = ("Gemma3ForConditionalGeneration", "Qwen3_5ForConditionalGeneration")


@pytest.fixture(params=all_wide_but(KEPT, WRAPPED))
def architecture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def checkpoint(random_checkpoint: Callable[..., Path], architecture: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(random_checkpoint(architecture), tmp_path / "model"))


def logits_of(path: Path) -> np.ndarray:
    verifier = load_verifier(ModelFolder(path, "random"))
    cache = verifier.allocate(FULL)
    return np.concatenate(
        [
            verifier.forward(cache, HISTORY[first : first + 16], want_logits=True)
            for first in range(0, len(HISTORY), 16)
        ]
    )


def change_weights(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(path / "model.safetensors")
    change(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def test_a_recipe_of_each_family_loads(random_checkpoint: Callable[..., Path]) -> None:
    for name in FAMILIES:
        verifier = load_verifier(ModelFolder(random_checkpoint(name), "random"))
        assert verifier.info.architecture == name
        assert verifier.info.vocabulary_size == 96
        cache = verifier.allocate(FULL)
        assert cache.memory_bytes == verifier.bytes_needed(FULL)


def test_the_text_part_is_the_librarys(architecture: str, checkpoint: Path) -> None:
    model = getattr(transformers, architecture).from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        expected = model.eval()(input_ids=torch.tensor([HISTORY])).logits[0].numpy()
    got = logits_of(checkpoint)
    assert np.abs(got - expected).max() < 1e-3 * np.abs(expected).max()
    assert expected.std() > 0.5


def test_other_modalities_weights_are_left_out(architecture: str, checkpoint: Path) -> None:
    before = logits_of(checkpoint)

    def change(weights: dict[str, torch.Tensor]) -> None:
        others = [name for name in weights if name.startswith(OTHER[architecture])]
        assert others
        weights[others[0]] = weights[others[0]] * 3
        weights.pop(others[1])
        weights[OTHER[architecture] + "more.weight"] = torch.zeros(3)

    change_weights(checkpoint, change)
    assert np.array_equal(logits_of(checkpoint), before)


def test_text_weights_are_all_accounted_for(architecture: str, checkpoint: Path) -> None:
    name = f"{LAYER[architecture]}input_layernorm.weight"
    change_weights(checkpoint, lambda weights: weights.pop(name))
    with pytest.raises(WeightsMismatch, match=r"missing: model\.layers\.1\.input_layernorm"):
        logits_of(checkpoint)


def test_a_tensor_of_no_known_part_is_named(architecture: str, checkpoint: Path) -> None:
    strays = (LAYER[architecture] + "extra.weight", "model.encoder.weight", "encoder.x")
    change_weights(
        checkpoint, lambda weights: weights.update({name: torch.zeros(3) for name in strays})
    )
    with pytest.raises(WeightsMismatch, match=r"unexpected: ") as caught:
        logits_of(checkpoint)
    assert all(name.rpartition("layers.1.")[2] in str(caught.value) for name in strays)


def test_quantized_text_is_refused(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    config["text_config"]["quantization_config"] = {"quant_method": "awq"}
    (checkpoint / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArchitectureUnsupported, match="quantized"):
        logits_of(checkpoint)


def test_keys_that_no_layer_uses_are_left_out_and_others_are_not(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Published Gemma 4 checkpoints hold key projections of layers that use another's."""
    path = Path(shutil.copytree(random_checkpoint("Gemma4ForCausalLM"), tmp_path / "model"))
    before = logits_of(path)
    shared = "model.layers.4.self_attn.k_proj.weight"
    change_weights(path, lambda weights: weights.update({shared: torch.ones(3)}))
    assert np.array_equal(logits_of(path), before)
    # Layer 1 has keys of its own, and values that are its keys.
    own = "model.layers.1.self_attn.v_proj.weight"
    change_weights(path, lambda weights: weights.update({own: torch.ones(3)}))
    with pytest.raises(WeightsMismatch, match=f"unexpected: {own}"):
        logits_of(path)


def test_a_draft_model_beside_the_decoder_is_left_out(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(random_checkpoint("Qwen3_5ForCausalLM"), tmp_path / "model"))
    before = logits_of(path)
    change_weights(path, lambda weights: weights.update({"mtp.fc.weight": torch.ones(3)}))
    assert np.array_equal(logits_of(path), before)


def test_one_text_under_two_names_is_refused(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    source = random_checkpoint("Gemma3ForConditionalGeneration")
    path = Path(shutil.copytree(source, tmp_path / "model"))
    name = "model.language_model.norm.weight"
    change_weights(path, lambda weights: weights.update({name: torch.ones(32)}))
    with pytest.raises(WeightsMismatch, match=r"model\.norm\.weight is in"):
        logits_of(path)


@pytest.mark.parametrize("tied", [True, wide(False)])
def test_the_head_is_tied_as_the_whole_config_says(
    random_checkpoint: Callable[..., Path], tmp_path: Path, tied: bool
) -> None:
    source = random_checkpoint("Qwen3_5ForConditionalGeneration", tie_word_embeddings=tied)
    path = Path(shutil.copytree(source, tmp_path / "model"))
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["tie_word_embeddings"] = not tied
    (path / "config.json").write_text(json.dumps(config))
    model = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        expected = model.eval()(input_ids=torch.tensor([HISTORY])).logits[0].numpy()
    assert np.abs(logits_of(path) - expected).max() < 1e-3

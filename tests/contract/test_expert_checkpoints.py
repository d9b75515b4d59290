"""Checkpoints of mixtures of experts: however they are stored, every expert is accounted for."""

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

from kakeya_fleet.engine.backends import installed_backends, load_verifier
from kakeya_fleet.engine.backends.on_paper import read_on_paper
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import ModelUnusable, WeightsMismatch
from kakeya_fleet.engine.models.model_folder import ModelFolder
from scripts.train.tiny_families import GEMMA4_26B, GEMMA4_EXPERTS
from tests.support import forwards
from tests.support.breadth import all_wide_but, wide

HISTORY = [(13 * index + index * index // 3) % 96 for index in range(48)]
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
QWEN, MIXTRAL = "Qwen3MoeForCausalLM", "MixtralForCausalLM"

Weights = dict[str, torch.Tensor]


@pytest.fixture(params=installed_backends())
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copied(random_checkpoint: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """A checkpoint of its own, to be damaged."""

    def copy(name: str, **options: object) -> Path:
        return Path(shutil.copytree(random_checkpoint(name, **options), tmp_path / "model"))

    return copy


def change(path: Path, changed: Callable[[Weights], object]) -> None:
    weights = load_file(path / "model.safetensors")
    changed(weights)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})


def logits(path: Path, backend: str) -> np.ndarray:
    verifier = load_verifier(ModelFolder(path, "random"), backend=backend)
    cache = verifier.allocate(FULL)
    return np.concatenate(
        [
            forwards.logits_of(verifier, cache, HISTORY[first : first + 16])
            for first in range(0, len(HISTORY), 16)
        ]
    )


DAMAGED: dict[str, tuple[str, Callable[[Weights], object], str]] = {
    "one is missing": (
        QWEN,
        lambda weights: weights.pop("model.layers.1.mlp.experts.3.up_proj.weight"),
        r"missing: model\.layers\.1\.mlp\.experts\.3\.up_proj\.weight$",
    ),
    "one is missing by the name it is stored under": (
        MIXTRAL,
        lambda weights: weights.pop("model.layers.0.block_sparse_moe.experts.5.w2.weight"),
        r"missing: model\.layers\.0\.\w+\.experts\.5\.down_proj\.weight$",
    ),
    "one too many": (
        QWEN,
        lambda weights: weights.update(
            {"model.layers.0.mlp.experts.16.gate_proj.weight": torch.zeros(32, 32)}
        ),
        r"unexpected: model\.layers\.0\.mlp\.experts\.16\.gate_proj\.weight$",
    ),
    "one of another shape": (
        QWEN,
        lambda weights: weights.update(
            {"model.layers.0.mlp.experts.2.down_proj.weight": torch.zeros(3, 3)}
        ),
        r"wrong shape: model\.layers\.0\.mlp\.experts\.2\.down_proj\.weight$",
    ),
    "one that is not finite": (
        QWEN,
        lambda weights: weights["model.layers.0.mlp.experts.2.down_proj.weight"].fill_(torch.inf),
        r"not finite: model\.layers\.0\.mlp\..*down_proj\.weight",
    ),
    "all of a layer are missing": (
        GEMMA4_26B,
        lambda weights: weights.pop("model.layers.1.experts.down_proj"),
        r"missing: model\.layers\.1\.experts\.\w+\.down_proj\.weight",
    ),
    "fewer than the config says": (
        GEMMA4_26B,
        lambda weights: weights.update(
            {
                "model.layers.1.experts.gate_up_proj": weights[
                    "model.layers.1.experts.gate_up_proj"
                ][:31].clone()
            }
        ),
        r"(missing|wrong shape): model\.layers\.1\.experts\.(31\.)?gate",
    ),
    "gate without up": (
        GEMMA4_26B,
        lambda weights: weights.update(
            {"model.layers.1.experts.gate_up_proj": torch.zeros(32, 17, 32)}
        ),
        r"model\.layers\.1\.experts\..*gate_up_proj",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_an_expert_that_is_not_as_it_must_be_is_named(
    copied: Callable[..., Path], backend: str, case: str
) -> None:
    name, damage, said = DAMAGED[case]
    path = copied(name)
    change(path, damage)
    with pytest.raises(WeightsMismatch, match=said):
        load_verifier(ModelFolder(path, "random"), backend=backend)


@pytest.mark.parametrize("name", [QWEN, wide(GEMMA4_26B)])
def test_files_may_part_a_layers_experts(
    random_checkpoint: Callable[..., Path], backend: str, name: str
) -> None:
    parted = random_checkpoint(name, shards=True)
    assert len(list(parted.glob("*.safetensors"))) > 2
    assert logits(parted, backend).tobytes() == logits(random_checkpoint(name), backend).tobytes()


@pytest.mark.parametrize("backend", all_wide_but(["torch"], installed_backends()), indirect=True)
def test_experts_beside_a_picture_are_the_librarys(
    random_checkpoint: Callable[..., Path], backend: str
) -> None:
    """As the 26B is published: the text part of a model of several modalities."""
    path = random_checkpoint("Gemma4ForConditionalGeneration", **GEMMA4_EXPERTS)
    model = transformers.Gemma4ForConditionalGeneration.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        expected = model.eval()(input_ids=torch.tensor([HISTORY])).logits[0].numpy()
    assert np.abs(logits(path, backend) - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("chosen", [0, 17])
def test_more_experts_than_there_are_cannot_be_chosen(
    copied: Callable[..., Path], backend: str, chosen: int
) -> None:
    path = copied(QWEN)
    config = json.loads((path / "config.json").read_text())
    config["num_experts_per_tok"] = chosen
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelUnusable, match=f"{chosen} of 16 experts"):
        load_verifier(ModelFolder(path, "random"), backend=backend)


def test_each_experts_weights_count(random_checkpoint: Callable[..., Path], backend: str) -> None:
    """What the files hold, and no more, is said to be loaded."""
    path = random_checkpoint(QWEN)
    stored = sum(tensor.nbytes for tensor in load_file(path / "model.safetensors").values())
    paper = read_on_paper(str(path), backend=backend, dtype="float32")
    assert paper.weight_bytes["auto"] == stored
    eight, four = paper.weight_bytes["int8"], paper.weight_bytes["int4"]
    assert four < eight < 0.4 * stored

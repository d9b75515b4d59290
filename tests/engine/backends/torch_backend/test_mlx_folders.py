"""Folders that MLX has quantized, on torch: the numbers are those of MLX's own dequantize."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.affine_weights import affine_numbers
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import ArchitectureUnsupported, WeightsMismatch
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.forwards import logits_of

pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx.core as mx
import mlx.utils
from mlx_lm import convert
from mlx_lm.utils import load_model

FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(24)]
FORMATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
LAYER = "model.layers.0.mlp.up_proj"


def torch_of(array: mx.array) -> torch.Tensor:
    """The same bits."""
    if array.dtype == mx.bfloat16:
        return torch.from_numpy(np.array(array.view(mx.uint16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("format_", FORMATS)
def test_numbers_are_those_of_mlx(bits: int, format_: str) -> None:
    mx.random.seed(bits)
    weight = (mx.random.normal((24, 128)) * 3).astype(getattr(mx, format_))
    words, scales, biases = mx.quantize(weight, group_size=32, bits=bits)
    expected = torch_of(mx.dequantize(words, scales, biases, group_size=32, bits=bits))
    made = affine_numbers(torch_of(words), torch_of(scales), torch_of(biases), bits, 32)
    assert made.dtype is FORMATS[format_]
    assert torch.equal(made, expected)


@pytest.fixture(scope="module")
def quantized(
    random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("mlx") / "model"
    source = random_checkpoint("Qwen3ForCausalLM", hidden_size=64, intermediate_size=64)
    convert(str(source), str(folder), quantize=True, q_bits=4, q_group_size=32)
    return folder


def test_a_folder_computes_what_its_numbers_compute(quantized: Path, tmp_path: Path) -> None:
    model, _ = load_model(quantized)
    plain = mlx.utils.tree_map_with_path(lambda _, each: each, model.parameters())
    numbers = {}
    flat = dict(mlx.utils.tree_flatten(plain))
    for name, array in flat.items():
        layer = name.removesuffix(".weight")
        if f"{layer}.scales" in flat and name.endswith(".weight"):
            parts = (array, flat[f"{layer}.scales"], flat[f"{layer}.biases"])
            numbers[name] = mx.dequantize(*parts, group_size=32, bits=4)
        elif not name.endswith((".scales", ".biases")):
            numbers[name] = array
    config = json.loads((quantized / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({k: v for k, v in config.items() if not k.startswith("quantization")})
    )
    mx.save_safetensors(str(tmp_path / "model.safetensors"), numbers, {"format": "pt"})
    (tmp_path / "tokenizer.json").write_bytes((quantized / "tokenizer.json").read_bytes())
    read = load_verifier(ModelFolder(quantized, "a"), backend="torch")
    expected = load_verifier(ModelFolder(tmp_path, "b"), backend="torch")
    found, wanted = (logits_of(each, each.allocate(FULL), HISTORY) for each in (read, expected))
    np.testing.assert_array_equal(found, wanted)
    assert read.info.quantization == "mlx-4bit-g32"


@pytest.mark.parametrize("part", ["weight", "scales", "biases"])
def test_a_part_that_is_missing_is_named(part: str, quantized: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((quantized / name).read_bytes())
    stored = mx.load(str(quantized / "model.safetensors"))
    assert isinstance(stored, dict)
    del stored[f"{LAYER}.{part}"]
    mx.save_safetensors(str(tmp_path / "model.safetensors"), stored, {"format": "mlx"})
    with pytest.raises(WeightsMismatch, match=LAYER):
        load_verifier(ModelFolder(tmp_path, "a"), backend="torch")


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8", "bitsandbytes"])
def test_what_others_have_quantized_is_refused_with_what_serves_it(
    method: str, quantized: Path, tmp_path: Path
) -> None:
    config = json.loads((quantized / "config.json").read_text())
    del config["quantization"]
    config["quantization_config"] = {"quant_method": method}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ArchitectureUnsupported, match=rf"by {method} \(.*GGUF"):
        load_verifier(ModelFolder(tmp_path, "a"), backend="torch")

"""Quantized MLX checkpoints, as mlx-lm's own conversion writes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.on_paper import read_on_paper
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable, WeightsMismatch
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support import forwards

pytest.importorskip("mlx.core", reason="MLX is not installed")
pytest.importorskip("torch", reason="torch is not installed, which makes the checkpoints")

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm import convert
from mlx_lm.utils import load_model

from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import MlxVerifier
from tests.support.breadth import wide

RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(72)]
"""Round the ring of 64 slots."""

CONVERSIONS = {
    # A folder's name, the architecture, bits and group size.
    "qwen3-4bit": ("Qwen3ForCausalLM", 4, 32),
    "experts-4bit": ("Qwen3MoeForCausalLM", 4, 32),
    "qwen3.5-8bit": ("Qwen3_5ForConditionalGeneration", 8, 32),
}

# Routers keep eight bits, in groups of 64.
SIZES = {"experts-4bit": {"hidden_size": 64}}


@pytest.fixture(scope="module")
def converted(
    random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, Path]]:
    """Unquantized and quantized folders by name."""
    root = tmp_path_factory.mktemp("converted")
    found: dict[str, tuple[Path, Path]] = {}
    for name, (architecture, _, _) in CONVERSIONS.items():
        path = random_checkpoint(architecture, **SIZES.get(name, {}))
        source = Path(shutil.copytree(path, root / f"{name}-source"))
        config = json.loads((source / "config.json").read_text())
        if "text_config" in config:  # what mlx-lm reads of the layers' order
            config["text_config"]["full_attention_interval"] = 2
        if "num_local_experts" in config:  # as older configs say it
            config |= {"num_experts": config["num_local_experts"], "rope_theta": 1e4}
        (source / "config.json").write_text(json.dumps(config))
        found[name] = (source, root / name)
        _, bits, group = CONVERSIONS[name]
        convert(str(source), str(root / name), quantize=True, q_bits=bits, q_group_size=group)
    return found


def load(path: Path, dtype: str = "float32") -> Verifier:
    return load_verifier(ModelFolder(path, path.name), backend="mlx", dtype=dtype)


def logits_of(path: Path, dtype: str = "float32", block: int = 16) -> np.ndarray:
    verifier = load(path, dtype)
    cache = verifier.allocate(RING)
    return np.concatenate(
        [
            forwards.logits_of(verifier, cache, HISTORY[first : first + block])
            for first in range(0, len(HISTORY), block)
        ]
    )


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("qwen3-4bit", "float32"),
        wide("qwen3-4bit", "bfloat16"),
        ("experts-4bit", "bfloat16"),
        wide("qwen3.5-8bit", "bfloat16"),
    ],
)
def test_a_quantized_model_is_near_its_original_and_exact(
    converted: dict[str, tuple[Path, Path]], name: str, dtype: str
) -> None:
    source, quantized = converted[name]
    _, bits, group = CONVERSIONS[name]
    mixed = "-mixed" if name in SIZES else ""
    assert load(quantized, dtype).info.quantization == f"mlx-{bits}bit-g{group}{mixed}"
    exact = logits_of(source)
    got = logits_of(quantized, dtype)
    error = np.sqrt(((got - exact) ** 2).mean()) / exact.std()
    assert 0 < error < (0.15 if bits == 8 else 0.5)
    assert logits_of(quantized, dtype, block=1).tobytes() == got.tobytes()


def test_the_same_logits_as_mlx_lm_itself(converted: dict[str, tuple[Path, Path]]) -> None:
    _, quantized = converted["qwen3-4bit"]
    # Within sink and window: there both see all of the history.
    model, _ = load_model(quantized)
    expected = np.array(model(mx.array([HISTORY[:12]]))[0].astype(mx.float32))
    assert expected.shape == (12, 96)
    assert np.abs(logits_of(quantized)[:12] - expected).max() < 1e-4


def test_weights_are_kept_packed(converted: dict[str, tuple[Path, Path]]) -> None:
    _, quantized = converted["qwen3-4bit"]
    stored = (quantized / "model.safetensors").stat().st_size
    before = mx.get_active_memory()
    verifier = load(quantized, "bfloat16")
    assert mx.get_active_memory() - before < stored
    assert verifier.info.dtype == "bfloat16"


def test_on_paper_they_are_as_small_as_they_are_kept(
    converted: dict[str, tuple[Path, Path]],
) -> None:
    for name in ("qwen3-4bit", "qwen3.5-8bit"):
        source, quantized = converted[name]
        paper = read_on_paper(str(quantized), backend="mlx", dtype="bfloat16")
        verifier = load(quantized, "bfloat16")
        assert isinstance(verifier, MlxVerifier)
        held = sum(array.nbytes for _, array in tree_flatten(verifier._model._model.parameters()))
        # A recurrence takes its layer's convolution out of the model.
        taken = 2 * 128 * 4 * mx.bfloat16.size if verifier._model.rules else 0
        assert paper.weight_bytes["auto"] == held + taken
        assert paper.layout.state_bytes == verifier.info.kv_fixed_bytes
        assert paper.weight_bytes.keys() == {"auto"}
        assert "quantized already" in paper.refused["int4"]
        plain = read_on_paper(str(source), backend="mlx", dtype="bfloat16")
        assert paper.weight_bytes["auto"] < plain.weight_bytes["auto"]


def test_on_torch_they_are_the_numbers_that_are_made_of_them(
    converted: dict[str, tuple[Path, Path]],
) -> None:
    source, quantized = converted["qwen3-4bit"]
    paper = read_on_paper(str(quantized), backend="torch", dtype="bfloat16")
    plain = read_on_paper(str(source), backend="torch", dtype="bfloat16")
    assert paper.weight_bytes == plain.weight_bytes
    assert paper.layout == plain.layout


@pytest.fixture
def damaged(converted: dict[str, tuple[Path, Path]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(converted["qwen3-4bit"][1], tmp_path / "model"))


def change_config(path: Path, **entries: object) -> None:
    config = json.loads((path / "config.json").read_text())
    config.update(entries)
    (path / "config.json").write_text(json.dumps(config))


def stored_weights(path: Path) -> dict[str, mx.array]:
    weights = mx.load(str(path / "model.safetensors"))
    assert isinstance(weights, dict)
    return weights


def change_weights(path: Path, change: Callable[[dict[str, mx.array]], object]) -> None:
    weights = stored_weights(path)
    mx.eval(weights)
    change(weights)
    mx.save_safetensors(str(path / "model.safetensors"), weights, {"format": "mlx"})


LAYER = "model.layers.0.mlp.up_proj"


def test_missing_scales_are_named(damaged: Path) -> None:
    change_weights(damaged, lambda weights: weights.pop(f"{LAYER}.scales"))
    with pytest.raises(WeightsMismatch, match=LAYER):
        load(damaged)


def test_missing_biases_are_named(damaged: Path) -> None:
    change_weights(damaged, lambda weights: weights.pop(f"{LAYER}.biases"))
    with pytest.raises(WeightsMismatch, match=rf"missing: {LAYER}\.biases"):
        load(damaged)


@pytest.mark.parametrize("sizes", [{"bits": 8, "group_size": 32}, {"bits": 4, "group_size": 64}])
def test_bits_that_are_not_those_of_the_weights_are_refused(
    damaged: Path, sizes: dict[str, int]
) -> None:
    change_config(damaged, quantization=sizes)
    with pytest.raises(ModelUnusable):
        load(damaged)


def test_weights_quantized_without_a_word_in_the_config_are_refused(damaged: Path) -> None:
    change_config(damaged, quantization=None, quantization_config=None)
    with pytest.raises(WeightsMismatch, match=r"unexpected: .*scales"):
        load(damaged)


def test_other_modes_are_refused_by_name(damaged: Path) -> None:
    sizes = {"bits": 4, "group_size": 32, "mode": "mxfp4"}
    change_config(damaged, quantization=sizes)
    with pytest.raises(ArchitectureUnsupported, match="mxfp4"):
        load(damaged)


def test_a_layer_of_its_own_bits(damaged: Path) -> None:
    stored = stored_weights(damaged)
    own = {"bits": 8, "group_size": 32}
    weight, scales, biases = (stored[f"{LAYER}.{part}"] for part in ("weight", "scales", "biases"))
    plain = mx.dequantize(weight, scales, biases, group_size=32, bits=4)
    parts = mx.quantize(plain, group_size=32, bits=8)
    before = logits_of(damaged)
    change_weights(
        damaged,
        lambda weights: weights.update(
            {
                f"{LAYER}.{part}": array
                for part, array in zip(("weight", "scales", "biases"), parts, strict=True)
            }
        ),
    )
    with pytest.raises(WeightsMismatch, match=f"wrong shape: {LAYER}"):
        load(damaged)
    change_config(damaged, quantization={"bits": 4, "group_size": 32, LAYER: own})
    assert load(damaged).info.quantization == "mlx-4bit-g32-mixed"
    # 8 bits hold what 4 bits held.
    assert np.abs(logits_of(damaged) - before).max() < 0.05 * before.std()

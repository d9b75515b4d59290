"""GGUF files of checkpoints in the hub's format, written as llama.cpp's converter writes them.

Names come of the `gguf` package's own tables; what is done to numbers is written here from
convert_hf_to_gguf.py, apart from what the engine undoes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma4ForCausalLM": "gemma4",
    "Qwen3_5ForCausalLM": "qwen35",
}
LESS_BY_ONE = ("gemma3", "qwen35")
"""Families whose norms are kept as w + 1."""
Config = dict[str, Any]


def write_gguf(
    folder: Path,
    path: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    template: str = "",
) -> Path:
    """The checkpoint in `folder` as a GGUF at `path`, its products in `kind`."""
    config: Config = json.loads((folder / "config.json").read_text())
    name = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, name)
    layers = config["num_hidden_layers"]
    _write_config(writer, config, name)
    _write_vocabulary(writer, config["vocab_size"], template)
    names = gguf.get_tensor_name_map(_arch(name), layers)
    for hub_name, tensor in load_file(folder / "model.safetensors").items():
        written = _written(hub_name, tensor.float(), config, name)
        to = names.get_name(_known(hub_name), try_suffixes=(".weight", ".bias"))
        assert to is not None, hub_name
        if to.endswith("layer_output_scale"):
            to += ".weight"
        numbers = np.ascontiguousarray(written.numpy())
        if numbers.ndim < 2 or "conv1d" in to:
            writer.add_tensor(to, numbers)
        else:
            writer.add_tensor(to, gguf.quantize(numbers, kind), raw_dtype=kind)
    for extra, values in _extra_tensors(config, name).items():
        writer.add_tensor(extra, np.array(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _arch(name: str) -> gguf.MODEL_ARCH:
    return next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)


def _known(hub_name: str) -> str:
    # The converter renames it before it looks.
    return hub_name.replace(".dt_bias", ".dt_proj.bias")


def _write_config(writer: gguf.GGUFWriter, config: Config, name: str) -> None:
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if name != "gemma4":
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(size)
        writer.add_value_length(size)
    {"llama": _write_llama, "gemma3": _write_gemma3, "gemma4": _write_gemma4}.get(
        name, _write_qwen
    )(writer, config)
    if name == "qwen35":
        _write_qwen35(writer, config, size)


def _rope(config: Config) -> Config:
    parameters: Config = config["rope_parameters"]
    return parameters


def _write_llama(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(_rope(config)["rope_theta"])


def _write_qwen(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_rope_freq_base(_rope(config)["rope_theta"])


def _write_gemma3(writer: gguf.GGUFWriter, config: Config) -> None:
    full, sliding = _rope(config)["full_attention"], _rope(config)["sliding_attention"]
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_freq_base_swa(sliding["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    if full["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(full["factor"])
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    if slides != [bool((index + 1) % 6) for index in range(len(slides))]:
        writer.add_sliding_window_pattern(slides)


def _write_gemma4(writer: gguf.GGUFWriter, config: Config) -> None:
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    layers, shared = len(slides), config["num_kv_shared_layers"]
    by_layer = config.get("per_layer_config", {})
    full = by_layer.get(f"{slides.index(False):02d}", by_layer.get(str(slides.index(False)), {}))
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(slides)
    writer.add_key_length(full.get("head_dim", config["head_dim"]))
    writer.add_value_length(full.get("head_dim", config["head_dim"]))
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    width = config["intermediate_size"]
    wide = config["use_double_wide_mlp"]
    writer.add_feed_forward_length(
        [2 * width if wide and index >= layers - shared else width for index in range(layers)]
    )
    own = config["num_key_value_heads"]
    writer.add_head_count_kv(
        [own if slide else full.get("num_key_value_heads", own) for slide in slides]
    )
    writer.add_rope_freq_base(_rope(config)["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(_rope(config)["sliding_attention"]["rope_theta"])
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _write_qwen35(writer: gguf.GGUFWriter, config: Config, size: int) -> None:
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    kinds = config["layer_types"]
    writer.add_full_attention_interval(kinds.index("full_attention") + 1)
    writer.add_rope_dimension_count(int(size * _rope(config)["partial_rotary_factor"]))
    writer.add_rope_dimension_sections([*_rope(config)["mrope_section"], 0])


def _write_vocabulary(writer: gguf.GGUFWriter, size: int, template: str) -> None:
    """Bytes with a few merges, and three control tokens at the end."""
    letters = sorted(_byte_letters().values())
    plain = letters[: size - 4] + [f"<t{index}>" for index in range(size - 4 - len(letters))]
    tokens = [*plain, "th", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (size - 3) + [3] * 3)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(size - 1)
    if template:
        writer.add_chat_template(template)


def _byte_letters() -> dict[int, str]:
    """The letters that stand for bytes in vocabularies of bytes, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + index) for index, byte in enumerate(others)
    }


def _written(hub_name: str, tensor: torch.Tensor, config: Config, name: str) -> torch.Tensor:
    """The tensor as the converter writes it."""
    if name == "llama" and ".q_proj." in hub_name:
        return _rotated(tensor, config["num_attention_heads"])
    if name == "llama" and ".k_proj." in hub_name:
        return _rotated(tensor, config["num_key_value_heads"])
    if name in LESS_BY_ONE and "norm.weight" in hub_name and "linear_attn" not in hub_name:
        return tensor + 1
    if "linear_attn" in hub_name:
        return _recurrent(hub_name, tensor, config)
    return tensor


def _rotated(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """LlamaModel.permute."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def _recurrent(hub_name: str, tensor: torch.Tensor, config: Config) -> torch.Tensor:
    """Qwen3NextModel.modify_tensors, and the reordering of value heads of Qwen3.5."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size = config["linear_value_head_dim"]
    first = 2 * keys * config["linear_key_head_dim"]
    part = hub_name.split("linear_attn.")[1]
    if part == "A_log":
        return _tiled(-torch.exp(tensor), keys, values, 1)
    if part in ("dt_bias", "in_proj_a.weight", "in_proj_b.weight"):
        return _tiled(tensor, keys, values, 1)
    if part == "in_proj_z.weight":
        return _tiled(tensor, keys, values, size)
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        flat = tensor.squeeze(1) if tensor.ndim == 3 else tensor
        return torch.cat((flat[:first], _tiled(flat[first:], keys, values, size)))
    if part == "out_proj.weight":
        return _tiled(tensor.T, keys, values, size).T.contiguous()
    return tensor


def _tiled(tensor: torch.Tensor, keys: int, values: int, size: int) -> torch.Tensor:
    """Value heads grouped by key head become tiled: head r of each key head, then head r + 1."""
    grouped = tensor.reshape(keys, values // keys, size, *tensor.shape[1:])
    return grouped.transpose(0, 1).reshape(tensor.shape)


def _extra_tensors(config: Config, name: str) -> dict[str, list[float]]:
    if name == "gemma4":
        slides = config["layer_types"].index("full_attention")
        by_layer = config.get("per_layer_config", {})
        full = by_layer.get(f"{slides:02d}", by_layer.get(str(slides), {}))
        half = full.get("head_dim", config["head_dim"]) // 2
        rotated = int(half * _rope(config)["full_attention"]["partial_rotary_factor"])
        return {"rope_freqs.weight": [1.0] * rotated + [1e30] * (half - rotated)}
    if name == "llama" and _rope(config)["rope_type"] == "llama3":
        return {"rope_freqs.weight": _llama3(config)}
    return {}


def _llama3(config: Config) -> list[float]:
    """LlamaModel.generate_extra_tensors."""
    rope, size = _rope(config), config["head_dim"]
    low_wavelength = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high_wavelength = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    found = []
    for index in range(0, size, 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (index / size)
        if wavelength < high_wavelength:
            found.append(1.0)
        elif wavelength > low_wavelength:
            found.append(rope["factor"])
        else:
            span = rope["high_freq_factor"] - rope["low_freq_factor"]
            turns = rope["original_max_position_embeddings"] / wavelength
            smooth = (turns - rope["low_freq_factor"]) / span
            found.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return found

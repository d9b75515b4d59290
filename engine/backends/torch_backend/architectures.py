"""Which checkpoints transformers' modelling code serves here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import transformers

from kakeya_fleet.engine.backends import architectures
from kakeya_fleet.engine.backends.affine_quantization import Quantization, read_quantization
from kakeya_fleet.engine.backends.architectures import (
    Architecture,
    Problems,
    asks_for,
    common_problems,
)
from kakeya_fleet.engine.backends.families import FAMILIES, FULL, SLIDING, Family
from kakeya_fleet.engine.models.json_object import Entries

MENDS = {
    "gptq": "llama.cpp's convert_hf_to_gguf.py makes a GGUF of it, which is served",
    "compressed-tensors": "llama.cpp's convert_hf_to_gguf.py makes a GGUF of it, which is served",
    "fp8": "llama.cpp's convert_hf_to_gguf.py makes a GGUF of it, which is served",
    "awq": "serve the checkpoint that it was made of, or a GGUF of that",
}
"""What serves a model of which this is the quantized one, by `quant_method`."""


@dataclass(frozen=True)
class TorchArchitecture(Architecture):
    """An architecture, and how MLX has quantized its weights, if it has."""

    quantization: Quantization | None


def read_architecture(folder: Path) -> TorchArchitecture:
    """The architecture of the checkpoint in `folder`; see `architectures.read_architecture`."""
    return architectures.read_architecture(folder, FAMILIES, _made, _problems)


def _made(
    family: Family,
    config: transformers.PretrainedConfig,
    entries: Entries,
) -> TorchArchitecture:
    return TorchArchitecture(
        family.name, config, family, read_quantization(entries, family.text_name)
    )


def _method(entries: Entries) -> str:
    """What quantized the weights, by the config or that of its text part."""
    text = entries.get("text_config")
    for part in (entries, text if isinstance(text, dict) else {}):
        found = part.get("quantization_config")
        if isinstance(found, dict):
            return str(found.get("quant_method", ""))[:64]
    return ""


def _problems(architecture: TorchArchitecture, entries: Entries) -> Problems:
    """What would run, but not as the model means it."""
    if architecture.quantization is None and asks_for(entries, "quantization_config"):
        method = _method(entries)
        mend = MENDS.get(method, MENDS["awq"])
        yield f"weights quantized by {method or 'no name'} ({mend})", {"quant_method": method}
    yield from common_problems(architecture)
    kinds = set(architecture.layer_kinds)
    text_model = architecture.family.text_model
    if text_model == "LlamaForCausalLM" and SLIDING in kinds:
        # The library's code has no such layers.
        yield f"layers of kind {SLIDING}", {"layer_types": SLIDING}
    if text_model == "MistralForCausalLM":
        # The library's code goes by sliding_window alone.
        expected = FULL if architecture.config.sliding_window is None else SLIDING
        if kinds != {expected}:
            yield "layer_types against its sliding_window", {"layer_types": expected}

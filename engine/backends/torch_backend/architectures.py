"""Which checkpoints transformers' modelling code serves here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import transformers

from kakeya_fleet.engine.backends import architectures
from kakeya_fleet.engine.backends.affine_quantization import read_quantization
from kakeya_fleet.engine.backends.architectures import (
    Architecture,
    Problems,
    asks_for,
    common_problems,
)
from kakeya_fleet.engine.backends.families import FAMILIES, FULL, SLIDING, Family
from kakeya_fleet.engine.backends.torch_backend.affine_weights import AffineQuantization
from kakeya_fleet.engine.backends.torch_backend.quantized_weights import WeightQuantization
from kakeya_fleet.engine.models.json_object import Entries

COMPRESSED = "compressed-tensors"
MENDS = {
    "gptq": "llama.cpp's convert_hf_to_gguf.py makes a GGUF of it, which is served",
    "fp8": "llama.cpp's convert_hf_to_gguf.py makes a GGUF of it, which is served",
    "mxfp4": "a folder of the same model with weights in bfloat16 is served",
    "awq": "serve the checkpoint that it was made of, or a GGUF of that",
}
"""What serves a model of which this is the quantized one, by `quant_method`."""


@dataclass(frozen=True)
class TorchArchitecture(Architecture):
    """An architecture, and how its weights are quantized, if they are."""

    quantization: WeightQuantization | None


def read_architecture(folder: Path) -> TorchArchitecture:
    """The architecture of the checkpoint in `folder`; see `architectures.read_architecture`."""
    return architectures.read_architecture(folder, FAMILIES, _made, _problems)


def architecture_of(entries: Entries, source: Path) -> TorchArchitecture:
    """The architecture of a config; see `architectures.architecture_of`."""
    return architectures.architecture_of(entries, source, FAMILIES, _made, _problems)


def _made(
    family: Family,
    config: transformers.PretrainedConfig,
    entries: Entries,
) -> TorchArchitecture:
    return TorchArchitecture(family.name, config, family, _quantization(family, entries))


def _quantization(family: Family, entries: Entries) -> WeightQuantization | None:
    """Raises as `read_quantization` and `compressed_weights.read_compression` do."""
    affine = read_quantization(entries, family.text_name)
    if affine is not None:
        return AffineQuantization(affine)
    said = _quantization_config(entries)
    if said.get("quant_method") != COMPRESSED:
        return None
    # Its library takes half a second to import, and few checkpoints need it.
    from kakeya_fleet.engine.backends.torch_backend.compressed_weights import (  # noqa: PLC0415
        read_compression,
    )

    return read_compression(said)


def _quantization_config(entries: Entries) -> Entries:
    """What the config, or that of its text part, says of how its weights were quantized."""
    text = entries.get("text_config")
    for part in (entries, text if isinstance(text, dict) else {}):
        found = part.get("quantization_config")
        if isinstance(found, dict):
            return found
    return {}


def _problems(architecture: TorchArchitecture, entries: Entries) -> Problems:
    """What would run, but not as the model means it."""
    if architecture.quantization is None and asks_for(entries, "quantization_config"):
        method = str(_quantization_config(entries).get("quant_method", ""))[:64]
        mend = MENDS.get(method, MENDS["awq"])
        yield f"weights quantized by {method or 'no name'} ({mend})", {"quant_method": method}
    elif architecture.quantization is not None and architecture.has_experts:
        yield (
            "experts whose weights are quantized",
            {"quant_method": architecture.quantization.label},
        )
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

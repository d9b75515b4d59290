"""The architectures served here, and the configs of theirs that are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import transformers
from huggingface_hub.errors import StrictDataclassError

from engine.errors import ArchitectureUnsupported, ModelNotFound, ModelUnusable

SUPPORTED = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
"""Decoders of full-attention layers whose attention goes through `AttentionInterface`."""

POSITION_FREE_ROPE = ("default", "linear", "llama3", "yarn")
"""RoPE kinds whose angles depend on the position alone.

`dynamic` and `longrope` change with the longest history the model has seen, so
that one session would change another.
"""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A checkpoint's architecture by name, and its config."""

    name: str
    config: transformers.PretrainedConfig


def read_architecture(folder: Path) -> Architecture:
    """The architecture that `config.json` in `folder` asks for.

    Code in the folder is never run. Raises `ArchitectureUnsupported`,
    `ModelNotFound` without a config, `ModelUnusable` for a broken one.
    """
    entries = _entries(folder / "config.json")
    name = _architecture_name(entries)
    config_class = getattr(transformers, name).config_class
    if entries.get("model_type") != config_class.model_type:
        raise ArchitectureUnsupported(
            f"{name} with model_type {entries.get('model_type')!r} instead of "
            f"{config_class.model_type!r} is another architecture in disguise",
            architecture=name,
        )
    try:
        config = config_class.from_dict(entries)
    except (StrictDataclassError, ValueError, TypeError, KeyError) as error:
        raise ModelUnusable(f"{folder}/config.json is not valid: {error}", path=str(folder)) from (
            error
        )
    _check_config(name, config, entries)
    return Architecture(name, config)


def _entries(path: Path) -> dict[str, object]:
    """The JSON object in `path`."""
    try:
        entries = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelNotFound(f"there is no {path}", path=str(path)) from error
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}", path=str(path)) from error
    if not isinstance(entries, dict):
        raise ModelUnusable(f"{path} is not a JSON object", path=str(path))
    return cast(dict[str, object], entries)


def _architecture_name(entries: dict[str, object]) -> str:
    """The one supported architecture named in the config."""
    named = entries.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if len(names) != 1 or names[0] not in SUPPORTED:
        asked = ", ".join(names) or f"model_type {entries.get('model_type')!r}"
        raise ArchitectureUnsupported(
            f"{asked} is not served; served are {', '.join(SUPPORTED)}",
            architecture=asked,
            supported=",".join(SUPPORTED),
        )
    return names[0]


def _check_config(
    name: str, config: transformers.PretrainedConfig, entries: dict[str, object]
) -> None:
    """Raises `ArchitectureUnsupported` for what would run, but not as the model means it."""
    if entries.get("quantization_config") is not None:
        raise ArchitectureUnsupported(
            f"{name} with quantized weights is not served; use the unquantized checkpoint",
            architecture=name,
        )
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    if not kinds and getattr(config, "layer_types", None) is None:
        kinds = ["sliding_window"] if getattr(config, "sliding_window", None) else []
    if kinds:
        raise ArchitectureUnsupported(
            f"{name} with layers of kind {', '.join(kinds)} is not served; "
            "all layers must be full_attention",
            architecture=name,
            layer_types=",".join(kinds),
        )
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in POSITION_FREE_ROPE:
        raise ArchitectureUnsupported(
            f"{name} with RoPE of type {rope} is not served; served are "
            f"{', '.join(POSITION_FREE_ROPE)}",
            architecture=name,
            rope_type=str(rope),
        )

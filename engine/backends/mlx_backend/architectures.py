"""Which architecture a checkpoint is of, and whether its config is one served here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import transformers
from huggingface_hub.errors import StrictDataclassError

from kakeya_fleet.engine.backends.mlx_backend.families import FAMILIES, FULL, SLIDING, Family
from kakeya_fleet.engine.backends.mlx_backend.quantization import Quantization, read_quantization
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelNotFound, ModelUnusable

POSITION_FREE_ROPE = ("default", "linear", "llama3", "yarn", "proportional")
"""RoPE kinds whose angles depend on the position alone.

`dynamic` and `longrope` change with the longest history the model has seen, so
that one session would change another.
"""
YARN_OPTIONS = frozenset({"attention_factor", "mscale", "mscale_all_dim", "truncate"})
"""Options of YaRN that mlx-lm takes otherwise than transformers, or not at all."""

REUSES_KEYS = "reuse"
"""What Gemma 4's config calls a layer without keys of its own."""

REFUSED = (
    ("enable_moe_block", (True,), "mixture-of-experts layers"),
    ("use_bidirectional_attention", (True, "all"), "bidirectional attention"),
)
"""Config entries, the values of theirs that are not served, and what they stand for."""

ACTIVATIONS = {"gemma3_text": "gelu_pytorch_tanh", "gemma4_text": "gelu_pytorch_tanh"}
"""By mlx-lm's module, the activation that its code has; `silu` in all others."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A checkpoint's architecture by name, its family, and its text part's config."""

    name: str
    config: transformers.PretrainedConfig
    family: Family
    quantization: Quantization | None

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kind of each layer, in the library's words.

        A config without `layer_types` has one kind for all, by its `sliding_window`.
        """
        named = getattr(self.config, "layer_types", None)
        if named is not None:
            return tuple(named)
        kind = FULL if getattr(self.config, "sliding_window", None) is None else SLIDING
        return (kind,) * int(self.config.num_hidden_layers)

    @property
    def sources(self) -> tuple[int | None, ...]:
        """For each layer that of whose keys it uses, None for those with their own.

        It is the last layer of the same kind that has its own.
        """
        kinds = self.layer_kinds
        modes = getattr(self.config, "kv_sharing_modes", None)
        if modes is None:
            return (None,) * len(kinds)
        own = {kind: i for i, kind in enumerate(kinds) if modes[i] != REUSES_KEYS}
        return tuple(own[kind] if modes[i] == REUSES_KEYS else None for i, kind in enumerate(kinds))

    def text_name(self, stored: str) -> str | None:
        """What the text model calls the tensor `stored`; None if it is no part of it.

        Checkpoints hold keys' weights for layers that use another's.
        """
        name = self.family.text_name(stored)
        for index, source in enumerate(self.sources):
            prefix = f"model.layers.{index}.self_attn."
            if source is not None and name is not None and name.startswith(prefix):
                part = name.removeprefix(prefix).split(".")[0]
                return None if part in ("k_proj", "v_proj", "k_norm") else name
        return name


def read_architecture(folder: Path) -> Architecture:
    """The architecture that `config.json` in `folder` asks for.

    Code in the folder is never run. Raises `ArchitectureUnsupported`,
    `ModelNotFound` without a config, `ModelUnusable` for a broken one.
    """
    entries = _entries(folder / "config.json")
    family = _family(entries)
    if entries.get("model_type") != family.model_type:
        raise ArchitectureUnsupported(
            f"{family.name} with model_type {entries.get('model_type')!r} instead of "
            f"{family.model_type!r} is another architecture in disguise",
            architecture=family.name,
        )
    try:
        whole = transformers.CONFIG_MAPPING[family.model_type].from_dict(entries)
        config = whole.get_text_config()
        config.tie_word_embeddings = whole.tie_word_embeddings
        quantization = read_quantization(entries, family.text_name)
        architecture = Architecture(family.name, config, family, quantization)
        _check_numbers(architecture)
    except (StrictDataclassError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ModelUnusable(f"{folder}/config.json is not valid: {error}", path=str(folder)) from (
            error
        )
    for problem, metadata in _problems(architecture, entries):
        raise ArchitectureUnsupported(
            f"{architecture.name} with {problem} is not served",
            architecture=architecture.name,
            **metadata,
        )
    return architecture


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


def _family(entries: dict[str, object]) -> Family:
    """The family of the one supported architecture named in the config."""
    named = entries.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if len(names) != 1 or names[0] not in FAMILIES:
        asked = ", ".join(names) or f"model_type {entries.get('model_type')!r}"
        raise ArchitectureUnsupported(
            f"{asked} is not served; served are {', '.join(FAMILIES)}",
            architecture=asked,
            supported=",".join(FAMILIES),
        )
    return FAMILIES[names[0]]


def _check_numbers(architecture: Architecture) -> None:
    """Raises `ValueError` for sizes that do not fit each other."""
    config = architecture.config
    kinds = architecture.layer_kinds
    if len(kinds) != config.num_hidden_layers:
        raise ValueError(f"{len(kinds)} layer_types for {config.num_hidden_layers} layers")
    for entry in ("max_position_embeddings", "sliding_window"):
        size = getattr(config, entry, None)
        if size is not None and size < 1:
            raise ValueError(f"{entry} is {size}")
    for index in range(len(kinds)):
        own = config.per_layer_config[index]
        kv_heads = getattr(own, "num_key_value_heads", None) or own.num_attention_heads
        if own.num_attention_heads % kv_heads:
            raise ValueError(f"{own.num_attention_heads} heads share {kv_heads} keys")
    key_heads = getattr(config, "linear_num_key_heads", 1)
    if getattr(config, "linear_num_value_heads", key_heads) % key_heads:
        raise ValueError("linear_num_value_heads is no multiple of linear_num_key_heads")
    # Of a kind that has no keys of its own to be shared there is no source.
    _ = architecture.sources


def _problems(
    architecture: Architecture, entries: dict[str, object]
) -> Iterator[tuple[str, dict[str, str]]]:
    """What would run, but not as the model means it, each with an error's metadata."""
    config, module = architecture.config, architecture.family.module
    text = entries.get("text_config")
    parts = (entries, text if isinstance(text, dict) else {})
    if architecture.quantization is None and any(part.get("quantization_config") for part in parts):
        yield "weights that another library quantized", {"entry": "quantization_config"}
    for entry, values, meaning in REFUSED:
        if getattr(config, entry, None) in values:
            yield meaning, {"entry": entry}
    if getattr(config, "attn_logit_softcapping", None) is not None:
        yield "a soft cap on attention scores", {"entry": "attn_logit_softcapping"}
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "silu")
    if activation != ACTIVATIONS.get(module, "silu"):
        yield f"activation {activation}", {"activation": str(activation)}
    kinds = sorted(set(architecture.layer_kinds) - architecture.family.kinds)
    if kinds:
        yield f"layers of kind {', '.join(kinds)}", {"layer_types": ",".join(kinds)}
    sliding = SLIDING in architecture.layer_kinds
    if sliding and getattr(config, "sliding_window", None) is None:
        yield "layers of kind sliding_attention and no sliding_window", {"layer_types": SLIDING}
    for rope in rope_parameters(config):
        kind = str(rope.get("rope_type", "default"))
        if kind not in POSITION_FREE_ROPE:
            yield f"RoPE of type {kind}", {"rope_type": kind}
        if kind == "yarn" and YARN_OPTIONS & {k for k, v in rope.items() if v is not None}:
            yield "options of YaRN that mlx-lm does not take", {"rope_type": kind}


def rope_parameters(config: transformers.PretrainedConfig) -> list[dict[str, object]]:
    """The RoPE parameters of each kind of layers, or those of all."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return [part for part in nested if "rope_type" in part] or [parameters]

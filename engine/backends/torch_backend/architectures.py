"""Which architecture a checkpoint is of, and whether its config is one served here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import transformers
from huggingface_hub.errors import StrictDataclassError

from kakeya_fleet.engine.backends.torch_backend.families import (
    FAMILIES,
    FULL,
    RECURRENT,
    SLIDING,
    Family,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelNotFound, ModelUnusable

POSITION_FREE_ROPE = ("default", "linear", "llama3", "yarn", "proportional")
"""RoPE kinds whose angles depend on the position alone.

`dynamic` and `longrope` change with the longest history the model has seen, so
that one session would change another.
"""

REFUSED = (
    ("enable_moe_block", (True,), "mixture-of-experts layers"),
    ("use_bidirectional_attention", (True, "all"), "bidirectional attention"),
)
"""Config entries, the values of theirs that are not served, and what they stand for."""

REUSES_KEYS = "reuse"
"""What Gemma 4's config calls a layer without keys of its own."""


@dataclass(frozen=True)
class Architecture:
    """A checkpoint's architecture by name, its family, and its text part's config."""

    name: str
    config: transformers.PretrainedConfig
    family: Family

    @cached_property
    def layer_kinds(self) -> tuple[str, ...]:
        """The kind of each layer, in the library's words.

        A config without `layer_types` has one kind for all, by its `sliding_window`.
        """
        named = getattr(self.config, "layer_types", None)
        if named is not None:
            return tuple(named)
        kind = FULL if getattr(self.config, "sliding_window", None) is None else SLIDING
        return (kind,) * int(self.config.num_hidden_layers)

    @cached_property
    def sources(self) -> tuple[int | None, ...]:
        """For each layer that of whose keys it uses, None for those with their own.

        It is the last layer of the same kind that has its own.
        """
        modes = getattr(self.config, "kv_sharing_modes", None)
        if modes is None:
            return (None,) * len(self.layer_kinds)
        kinds = self.layer_kinds
        own = {kind: i for i, kind in enumerate(kinds) if modes[i] != REUSES_KEYS}
        return tuple(own[kind] if modes[i] == REUSES_KEYS else None for i, kind in enumerate(kinds))

    def text_name(self, stored: str) -> str | None:
        """What the text model calls the tensor `stored`; None if it is no part of it."""
        name = self.family.text_name(stored)
        return None if name in self._unused_names else name

    @cached_property
    def _unused_names(self) -> frozenset[str]:
        """Weights that checkpoints hold for layers that use another's keys."""
        return frozenset(
            f"model.layers.{index}.self_attn.{part}.weight"
            for index, source in enumerate(self.sources)
            if source is not None
            for part in ("k_proj", "v_proj", "k_norm")
        )


def read_architecture(folder: Path) -> Architecture:
    """The architecture that `config.json` in `folder` asks for.

    Code in the folder is never run. Raises `ArchitectureUnsupported`,
    `ModelNotFound` without a config, `ModelUnusable` for a broken one.
    """
    entries = _entries(folder / "config.json")
    family = _family(entries)
    config_class = getattr(transformers, family.config)
    if entries.get("model_type") != config_class.model_type:
        raise ArchitectureUnsupported(
            f"{family.name} with model_type {entries.get('model_type')!r} instead of "
            f"{config_class.model_type!r} is another architecture in disguise",
            architecture=family.name,
        )
    try:
        whole = config_class.from_dict(entries)
        config = whole.get_text_config()
        config.tie_word_embeddings = whole.tie_word_embeddings
        architecture = Architecture(family.name, config, family)
        _check_numbers(architecture)
    except (StrictDataclassError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ModelUnusable(f"{folder}/config.json is not valid: {error}", path=str(folder)) from (
            error
        )
    _check_served(architecture, entries)
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
    with_inputs = getattr(config, "hidden_size_per_layer_input", 0)
    if with_inputs and config.vocab_size_per_layer_input < config.vocab_size:
        raise ValueError("vocab_size_per_layer_input is less than vocab_size")
    # Of a kind that has no keys of its own to be shared there is no source.
    _ = architecture.sources


def _check_served(architecture: Architecture, entries: dict[str, object]) -> None:
    """Raises `ArchitectureUnsupported` for what would run, but not as the model means it."""
    for problem, metadata in _problems(architecture, entries):
        raise ArchitectureUnsupported(
            f"{architecture.name} with {problem} is not served",
            architecture=architecture.name,
            **metadata,
        )


def _problems(
    architecture: Architecture, entries: dict[str, object]
) -> Iterator[tuple[str, dict[str, str]]]:
    """What is not served, each with an error's metadata."""
    config = architecture.config
    text = entries.get("text_config")
    for part in (entries, text if isinstance(text, dict) else {}):
        if part.get("quantization_config") is not None:
            yield "quantized weights (use the unquantized checkpoint)", {}
    for entry, values, meaning in REFUSED:
        if getattr(config, entry, None) in values:
            yield meaning, {"entry": entry}
    if getattr(config, "attn_logit_softcapping", None) is not None:
        yield "a soft cap on attention scores", {"entry": "attn_logit_softcapping"}
    yield from _kind_problems(architecture)
    for rope in _rope_types(config):
        if rope not in POSITION_FREE_ROPE:
            yield f"RoPE of type {rope}", {"rope_type": rope}


def _kind_problems(architecture: Architecture) -> Iterator[tuple[str, dict[str, str]]]:
    """What is not served of the kinds of layers."""
    config = architecture.config
    kinds = sorted(set(architecture.layer_kinds) - architecture.family.kinds)
    if kinds:
        yield f"layers of kind {', '.join(kinds)}", {"layer_types": ",".join(kinds)}
    if not {FULL, SLIDING} & set(architecture.layer_kinds):
        yield "no layer of attention", {"layer_types": RECURRENT}
    sliding = SLIDING in architecture.layer_kinds
    if sliding and getattr(config, "sliding_window", None) is None:
        yield "layers of kind sliding_attention and no sliding_window", {"layer_types": SLIDING}
    if architecture.family.text_model == "MistralForCausalLM":
        # The library's code goes by sliding_window alone.
        expected = FULL if config.sliding_window is None else SLIDING
        if set(architecture.layer_kinds) != {expected}:
            yield "layer_types against its sliding_window", {"layer_types": expected}


def _rope_types(config: transformers.PretrainedConfig) -> list[str]:
    """The RoPE types of all kinds of layers."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    found = [part for part in nested if "rope_type" in part] or [parameters]
    return [str(part.get("rope_type", "default")) for part in found]

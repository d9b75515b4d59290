"""Which architecture a checkpoint is of, and whether its config is one served here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import transformers
from huggingface_hub.errors import StrictDataclassError

from kakeya_fleet.engine.backends.families import FULL, RECURRENT, SLIDING, Family
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable
from kakeya_fleet.engine.models.json_object import Entries, read_json_object

"""Of a `config.json`."""
Problems = Iterator[tuple[str, dict[str, str]]]
"""What would run, but not as the model means it, each with an error's metadata."""

POSITION_FREE_ROPE = ("default", "linear", "llama3", "yarn", "proportional")
"""RoPE kinds whose angles depend on the position alone.

`dynamic` and `longrope` change with the longest history the model has seen, so
that one session would change another.
"""

REFUSED = (("use_bidirectional_attention", (True, "all"), "bidirectional attention"),)
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
        if name is None or self._unused_modules & {name, name.rpartition(".")[0]}:
            return None
        return name

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts, at least in some layers."""
        # Gemma 4's config says which of its models are.
        return self.family.has_experts or bool(getattr(self.config, "enable_moe_block", False))

    @cached_property
    def _unused_modules(self) -> frozenset[str]:
        """Those whose weights checkpoints hold for layers that use another's keys."""
        return frozenset(
            f"model.layers.{index}.self_attn.{part}"
            for index, source in enumerate(self.sources)
            if source is not None
            for part in ("k_proj", "v_proj", "k_norm")
        )


Own = TypeVar("Own", bound=Architecture)


def read_architecture(
    folder: Path,
    families: Mapping[str, Family],
    made: Callable[[Family, transformers.PretrainedConfig, Entries], Own],
    problems: Callable[[Own, Entries], Problems],
) -> Own:
    """The architecture that `config.json` in `folder` asks for; see `architecture_of`.

    Code in the folder is never run. Raises `ModelNotFound` without a config, too.
    """
    source = folder / "config.json"
    return architecture_of(read_json_object(source), source, families, made, problems)


def architecture_of(
    entries: Entries,
    source: Path,
    families: Mapping[str, Family],
    made: Callable[[Family, transformers.PretrainedConfig, Entries], Own],
    problems: Callable[[Own, Entries], Problems],
) -> Own:
    """The architecture that the `entries` of a config ask for, one of `families`.

    A back end's own is `made` of its family, the config of its text part and the
    entries; `problems` are what the back end does not serve. `source` is the file that errors
    name. Raises `ArchitectureUnsupported`, `ModelUnusable` for a broken config.
    """
    family = _family(entries, families)
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
        architecture = made(family, config, entries)
        _check_numbers(architecture)
    except (StrictDataclassError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ModelUnusable(f"{source} is not valid: {error}", path=str(source)) from error
    for problem, metadata in problems(architecture, entries):
        raise ArchitectureUnsupported(
            f"{architecture.name} with {problem} is not served",
            architecture=architecture.name,
            **metadata,
        )
    return architecture


def _family(entries: Entries, families: Mapping[str, Family]) -> Family:
    """The family of the one supported architecture named in the config."""
    named = entries.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if len(names) != 1 or names[0] not in families:
        asked = ", ".join(names) or f"model_type {entries.get('model_type')!r}"
        raise ArchitectureUnsupported(
            f"{asked} is not served; served are {', '.join(families)}",
            architecture=asked,
            supported=",".join(families),
        )
    return families[names[0]]


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
    if architecture.has_experts:
        experts = _first(config, "num_local_experts", "num_experts")
        chosen = chosen_experts(config)
        if not 0 < chosen <= experts:
            raise ValueError(f"{chosen} of {experts} experts a token")
    with_inputs = getattr(config, "hidden_size_per_layer_input", 0)
    if with_inputs and config.vocab_size_per_layer_input < config.vocab_size:
        raise ValueError("vocab_size_per_layer_input is less than vocab_size")
    # Of a kind that has no keys of its own to be shared there is no source.
    _ = architecture.sources


def chosen_experts(config: transformers.PretrainedConfig) -> int:
    """How many experts each token asks in a layer. Raises `ValueError` if none are asked."""
    return _first(config, "num_experts_per_tok", "top_k_experts")


def _first(config: transformers.PretrainedConfig, *entries: str) -> int:
    """The first of the `entries` that `config` has. Raises `ValueError` if it has none."""
    for entry in entries:
        found = getattr(config, entry, None)
        if found is not None:
            return int(found)
    raise ValueError(f"there is no {entries[-1]}")


def common_problems(architecture: Architecture) -> Problems:
    """What no back end serves."""
    config = architecture.config
    for entry, values, meaning in REFUSED:
        if getattr(config, entry, None) in values:
            yield meaning, {"entry": entry}
    if getattr(config, "attn_logit_softcapping", None) is not None:
        yield "a soft cap on attention scores", {"entry": "attn_logit_softcapping"}
    kinds = sorted(set(architecture.layer_kinds) - architecture.family.kinds)
    if kinds:
        yield f"layers of kind {', '.join(kinds)}", {"layer_types": ",".join(kinds)}
    if not {FULL, SLIDING} & set(architecture.layer_kinds):
        yield "no layer of attention", {"layer_types": RECURRENT}
    sliding = SLIDING in architecture.layer_kinds
    if sliding and getattr(config, "sliding_window", None) is None:
        yield "layers of kind sliding_attention and no sliding_window", {"layer_types": SLIDING}
    for rope in rope_parameters(config):
        kind = str(rope.get("rope_type", "default"))
        if kind not in POSITION_FREE_ROPE:
            yield f"RoPE of type {kind}", {"rope_type": kind}


def asks_for(entries: Entries, entry: str) -> bool:
    """Whether the config or its text part has something under `entry`."""
    text = entries.get("text_config")
    parts = (entries, text if isinstance(text, dict) else {})
    return any(part.get(entry) is not None for part in parts)


def rope_parameters(config: transformers.PretrainedConfig) -> list[dict[str, object]]:
    """The RoPE parameters of each kind of layers, or those of all."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    return [part for part in nested if "rope_type" in part] or [parameters]

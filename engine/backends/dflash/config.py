"""What a DFlash checkpoint's config says, read strictly (DFlash, arXiv:2602.06036).

What version 2 has beside is read by `version_2.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from huggingface_hub.errors import StrictDataclassError
from transformers import Qwen3Config

from kakeya_fleet.engine.backends.dflash.checked_entries import flag, index, positive, real
from kakeya_fleet.engine.backends.dflash.version_2 import (
    ARCHITECTURE_2,
    CONFIDENCE,
    VERSION_2,
    Version2,
    read_version_2,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable
from kakeya_fleet.engine.models.json_object import read_json_object

ARCHITECTURE = "DFlashDraftModel"
SERVED = (ARCHITECTURE, ARCHITECTURE_2)
MODEL_TYPE = "qwen3"
"""What configs of both versions call it, though the library's Qwen 3 is another model."""

FULL = "full_attention"
SLIDING = "sliding_attention"
POSITION_FREE_ROPE = ("default", "linear", "llama3", "yarn", "proportional")
"""RoPE kinds whose angles depend on the position alone."""

CONTEXT_POSITIONS = 4096
"""Positions that a layer without a sliding window sees at most, so that memory has a bound."""

NESTED = "dflash_config"
CONDITIONING = (
    "block_size",
    "mask_token_id",
    "target_layer_ids",
    "num_target_layers",
    "is_causal",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
)
"""Entries that may stand at the top level or in `dflash_config`."""
CONDITIONING_2 = (*CONDITIONING, *VERSION_2, *CONFIDENCE)
"""Those of version 2."""

SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "vocab_size",
)


@dataclass(frozen=True, slots=True)
class DraftLayerRule:
    """Which keys a layer's queries see: the distance is at most `window`, None for any.

    A causal layer's query sees none behind itself, and `window` of them with itself.
    """

    causal: bool
    window: int | None


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """The shape of a drafter. Sizes count numbers, heads, layers and positions.

    `block_size` counts the last committed token and the masks; `taps` are the
    target's layers, from 0, whose outputs are its context features. `rotary` is
    the library's config, of which rotary frequencies are made. `version_2` is what
    version 1 does not have, None for such a drafter.
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    target_layer_count: int
    vocabulary_size: int
    context_length: int
    rules: tuple[DraftLayerRule, ...]
    embedding_scale: float
    rotary: Qwen3Config
    version_2: Version2 | None = None

    @property
    def architecture(self) -> str:
        """What its config calls it."""
        return ARCHITECTURE if self.version_2 is None else ARCHITECTURE_2

    @property
    def layer_count(self) -> int:
        """Layers of the drafter."""
        return len(self.rules)

    @property
    def context_positions(self) -> int:
        """Positions of which keys and values are kept: no layer sees more."""
        windows = [rule.window for rule in self.rules]
        return max(CONTEXT_POSITIONS if window is None else window for window in windows)

    @property
    def query_size(self) -> int:
        """Numbers of one position's queries in a layer."""
        return self.heads * self.head_dim

    @property
    def key_size(self) -> int:
        """Numbers of one position's keys in a layer."""
        return self.kv_heads * self.head_dim


def read_config(folder: Path) -> DFlashConfig:
    """The drafter that `config.json` in `folder` describes. No code in the folder is run.

    Raises `ModelNotFound` without a config, `ArchitectureUnsupported` for one
    that is no DFlash or not as served, `ModelUnusable` for entries that are
    missing, contradict each other or cannot be.
    """
    entries = read_json_object(folder / "config.json")
    architecture = _checked_architecture(entries)
    try:
        values = _conditioning(entries, _conditioning_entries(architecture))
        library = _library_config(entries, architecture)
        return _config(entries, values, library, architecture)
    except (StrictDataclassError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        message = error.args[0] if isinstance(error, LookupError) and error.args else error
        raise ModelUnusable(
            f"{folder}/config.json is not valid: {message}", path=str(folder)
        ) from error


def _conditioning_entries(architecture: str) -> tuple[str, ...]:
    return CONDITIONING if architecture == ARCHITECTURE else CONDITIONING_2


def _checked_architecture(entries: Mapping[str, object]) -> str:
    """Which of `SERVED` it is. Raises `ArchitectureUnsupported`: none, or not as it is served."""
    named = entries.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    if len(names) != 1 or names[0] not in SERVED:
        raise ArchitectureUnsupported(
            f"{', '.join(names) or 'no architecture'} is not a drafter that is served; served are"
            f" {' and '.join(SERVED)}",
            architecture=",".join(names),
            supported=",".join(SERVED),
        )
    (architecture,) = names
    nested = entries.get(NESTED)
    keys = {*entries, *(nested if isinstance(nested, dict) else ())}
    later = sorted(keys.intersection(VERSION_2))
    if later and architecture == ARCHITECTURE:
        raise _unsupported(
            f"entries of version 2, {ARCHITECTURE_2}: {', '.join(later)}",
            architecture,
            entries=",".join(later),
        )
    if entries.get("model_type") != MODEL_TYPE:
        raise _unsupported(
            f"model_type {entries.get('model_type')!r} instead of {MODEL_TYPE!r}", architecture
        )
    known = set(_conditioning_entries(architecture))
    if isinstance(nested, dict) and (unknown := sorted(nested.keys() - known)):
        raise _unsupported(
            f"{NESTED} entries not known here: {', '.join(unknown)}",
            architecture,
            entries=",".join(unknown),
        )
    for entry, served in (("attention_bias", False), ("quantization_config", None)):
        if entries.get(entry) not in (served, None):
            raise _unsupported(f"{entry} {entries[entry]!r}", architecture, entries=entry)
    if entries.get("hidden_act", "silu") != "silu":
        raise _unsupported(
            f"hidden_act {entries['hidden_act']!r}", architecture, entries="hidden_act"
        )
    return architecture


def _unsupported(problem: str, architecture: str, **metadata: str) -> ArchitectureUnsupported:
    return ArchitectureUnsupported(
        f"{architecture} with {problem} is not served", architecture=architecture, **metadata
    )


def _conditioning(entries: Mapping[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """Those of the entries `names` that are given. Raises `ValueError` when two differ."""
    nested = entries.get(NESTED)
    if nested is not None and not isinstance(nested, dict):
        raise ValueError(f"{NESTED} is not an object")
    values: dict[str, object] = {}
    for name in names:
        found = [part[name] for part in (entries, nested or {}) if part.get(name) is not None]
        if len(found) == 2 and found[0] != found[1]:
            raise ValueError(f"{name} is {found[0]!r} and, in {NESTED}, {found[1]!r}")
        if found:
            values[name] = found[0]
    return values


def _library_config(entries: Mapping[str, object], architecture: str) -> Qwen3Config:
    """The library's config, which brings the ways to write rotary parameters into one."""
    for name in (*SIZES, "rms_norm_eps"):
        if entries.get(name) is None:
            raise LookupError(f"it has no {name}")
    if entries.get("rope_theta") is None and entries.get("rope_parameters") is None:
        raise LookupError("it has no rope_theta and no rope_parameters")
    # Without a `sliding_window` of its own the library's default would stand in.
    library = Qwen3Config.from_dict({"sliding_window": None, **entries})
    kind = library.rope_parameters.get("rope_type", "default")
    if kind not in POSITION_FREE_ROPE:
        raise _unsupported(f"RoPE of type {kind}", architecture, rope_type=str(kind))
    return library


def _config(
    entries: Mapping[str, object],
    values: Mapping[str, object],
    library: Qwen3Config,
    architecture: str,
) -> DFlashConfig:
    sizes = {name: positive(name, entries[name]) for name in SIZES}
    layer_count = positive("num_target_layers", values.get("num_target_layers"))
    block_size = positive("block_size", values.get("block_size"))
    version_2 = None
    if architecture == ARCHITECTURE_2:
        version_2 = read_version_2(
            values,
            hidden_size=sizes["hidden_size"],
            vocabulary_size=sizes["vocab_size"],
            block_size=block_size,
        )
    config = DFlashConfig(
        hidden_size=sizes["hidden_size"],
        intermediate_size=sizes["intermediate_size"],
        heads=sizes["num_attention_heads"],
        kv_heads=sizes["num_key_value_heads"],
        head_dim=sizes["head_dim"],
        norm_eps=real("rms_norm_eps", entries["rms_norm_eps"]),
        block_size=block_size,
        mask_token_id=index(
            "mask_token_id", values.get("mask_token_id"), sizes["vocab_size"], "vocab_size"
        ),
        taps=_taps(values.get("target_layer_ids"), layer_count),
        target_layer_count=layer_count,
        vocabulary_size=sizes["vocab_size"],
        context_length=sizes["max_position_embeddings"],
        rules=_rules(entries, values, library, architecture),
        embedding_scale=real("input_embedding_scale", values.get("input_embedding_scale", 1.0)),
        rotary=library,
        version_2=version_2,
    )
    # Neither changes which token has the largest logit, so that version 1 applies neither.
    for name in ("output_multiplier", "final_logit_softcapping"):
        real(name, values.get(name, 1.0))
    if config.block_size < 2:
        raise ValueError("a block_size of 1 has room for no draft")
    if config.heads % config.kv_heads:
        raise ValueError(f"{config.heads} heads share {config.kv_heads} keys")
    if config.head_dim % 2:
        raise ValueError(f"head_dim {config.head_dim} is odd")
    return config


def _rules(
    entries: Mapping[str, object],
    values: Mapping[str, object],
    library: Qwen3Config,
    architecture: str,
) -> tuple[DraftLayerRule, ...]:
    """What each layer's queries see.

    `is_causal` holds for all layers; where it is not given, sliding layers are
    causal and the others are not, as in the authors' code. A `sliding_window` s that
    is not causal means distances up to s in version 1, as transformers has it, and below s
    in version 2, as the engines that serve it have it.
    """
    kinds = tuple(library.layer_types)
    strange = sorted(set(kinds) - {FULL, SLIDING})
    if strange:
        raise _unsupported(f"layers of kind {', '.join(strange)}", architecture)
    if len(kinds) != library.num_hidden_layers:
        raise ValueError(f"{len(kinds)} layer_types for {library.num_hidden_layers} layers")
    window = entries.get("sliding_window")
    if SLIDING in kinds:
        if entries.get("use_sliding_window") is False:
            raise ValueError("layer_types has sliding layers and use_sliding_window is false")
        window = positive("sliding_window", window)
    given = values.get("is_causal")
    causal = None if given is None else flag("is_causal", given)
    rules = []
    for kind in kinds:
        is_causal = kind == SLIDING if causal is None else causal
        distance = None
        if kind == SLIDING:
            distance = cast(int, window) - int(architecture == ARCHITECTURE_2 and not is_causal)
            if not distance:
                raise ValueError("a sliding_window of 1 that is not causal shows no context")
        rules.append(DraftLayerRule(causal=is_causal, window=distance))
    return tuple(rules)


def _taps(given: object, layer_count: int) -> tuple[int, ...]:
    """The target's layers, from 0, in the order in which they are concatenated."""
    if not isinstance(given, list) or not given:
        raise ValueError(f"target_layer_ids is {given!r}, not a list of layers")
    taps = tuple(index("target_layer_ids", tap, layer_count, "num_target_layers") for tap in given)
    if len(set(taps)) != len(taps):
        raise ValueError(f"target_layer_ids {list(taps)} has a layer twice")
    return taps

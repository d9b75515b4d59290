"""The arguments of mlx-lm's models, from a config in transformers' words.

mlx-lm reads the entries that older checkpoints have, and has defaults for those
it does not find: a RoPE base that is stored in the newer way would be ignored
silently. So every entry is translated from the config as transformers
understands it, and what has no translation is refused by name.
"""

from __future__ import annotations

from typing import cast

from kakeya_fleet.engine.backends.architectures import rope_parameters
from kakeya_fleet.engine.backends.families import FULL, SLIDING
from kakeya_fleet.engine.backends.mlx_backend.architectures import MlxArchitecture
from kakeya_fleet.engine.errors import ArchitectureUnsupported

Arguments = dict[str, object]


def model_arguments(architecture: MlxArchitecture) -> Arguments:
    """What mlx-lm's `ModelArgs.from_dict` takes for `architecture`.

    Raises `ArchitectureUnsupported` for what mlx-lm's code does not have.
    """
    arguments = cast(Arguments, architecture.config.to_dict())
    arguments["model_type"] = architecture.code.module
    arguments["tie_word_embeddings"] = bool(architecture.config.tie_word_embeddings)
    module = architecture.code.module
    if module == "gemma3_text":
        return arguments | _gemma3(architecture)
    if module == "gemma4_text":
        return arguments | _gemma4(architecture)
    if module == "qwen3_5":
        return arguments | _qwen3_5(architecture)
    if module == "phi3":
        return arguments | _phi3(architecture)
    if module == "qwen3_moe":
        # Its config has this entry by another name.
        arguments["num_experts"] = architecture.config.num_experts
        arguments["mlp_only_layers"] = list(architecture.config.mlp_only_layers or ())
    return arguments | _rope(architecture) | _plain(architecture)


def _plain(architecture: MlxArchitecture) -> Arguments:
    """Llama, Mistral, Mixtral, OLMo 2, Qwen 2 and 3.

    Sliding windows are the cache's business, not the model's.
    """
    config, module = architecture.config, architecture.code.module
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if module in ("qwen2", "mixtral") and head_dim * heads != config.hidden_size:
        raise _unsupported(architecture, f"heads of {head_dim}")
    if module in ("qwen3", "qwen3_moe") and getattr(config, "attention_bias", False):
        raise _unsupported(architecture, "biases in its attention")
    if module in ("qwen3_moe", "mixtral") and _scaling(*rope_parameters(config)) is not None:
        raise _unsupported(architecture, "scaled RoPE")
    return {
        "head_dim": head_dim,
        "num_key_value_heads": getattr(config, "num_key_value_heads", None) or heads,
        "layer_types": [FULL] * config.num_hidden_layers,
        "sliding_window": None,
        "rope_parameters": None,
    }


def _phi3(architecture: MlxArchitecture) -> Arguments:
    config = architecture.config
    (parameters,) = rope_parameters(config)
    if _scaling(parameters) is not None:
        raise _unsupported(architecture, "scaled RoPE")
    head_dim = getattr(config, "head_dim", None)
    if head_dim not in (None, config.hidden_size // config.num_attention_heads):
        raise _unsupported(architecture, f"heads of {head_dim}")
    return {
        "rope_theta": parameters["rope_theta"],
        "rope_scaling": None,
        "partial_rotary_factor": parameters.get("partial_rotary_factor", 1.0),
    }


def _rope(architecture: MlxArchitecture) -> Arguments:
    """`rope_theta` and `rope_scaling` of a model with one RoPE."""
    (parameters,) = rope_parameters(architecture.config)
    _check_whole(architecture, parameters)
    return {"rope_theta": parameters["rope_theta"], "rope_scaling": _scaling(parameters)}


def _scaling(parameters: dict[str, object]) -> dict[str, object] | None:
    return None if parameters.get("rope_type", "default") == "default" else dict(parameters)


def _gemma3(architecture: MlxArchitecture) -> Arguments:
    config = architecture.config
    full = config.rope_parameters[FULL]
    sliding = config.rope_parameters[SLIDING]
    for parameters in (full, sliding):
        _check_whole(architecture, parameters)
    if _scaling(sliding) is not None:
        raise _unsupported(architecture, "scaled RoPE in its sliding layers")
    if config.attention_bias or config.final_logit_softcapping is not None:
        raise _unsupported(architecture, "attention_bias or final_logit_softcapping")
    return {
        "rope_theta": full["rope_theta"],
        "rope_scaling": _scaling(full),
        "rope_local_base_freq": sliding["rope_theta"],
        "sliding_window_pattern": _interval(architecture),
    }


def _gemma4(architecture: MlxArchitecture) -> Arguments:
    config = architecture.config
    if config.attention_bias:
        raise _unsupported(architecture, "attention_bias")
    heads: dict[str, set[tuple[int, int]]] = {FULL: set(), SLIDING: set()}
    for index, kind in enumerate(architecture.layer_kinds):
        own = config.per_layer_config[index]
        heads[kind].add((own.head_dim, own.num_key_value_heads))
    full = heads[FULL] or {(config.head_dim, config.num_key_value_heads)}
    sliding = heads[SLIDING] or full
    if len(full) != 1 or len(sliding) != 1:
        raise _unsupported(architecture, "layers of one kind with different heads")
    (full_dim, full_kv_heads), (sliding_dim, sliding_kv_heads) = *full, *sliding
    if full_kv_heads != sliding_kv_heads and not config.attention_k_eq_v:
        raise _unsupported(architecture, "kinds of layers with different numbers of keys")
    return {
        "head_dim": sliding_dim,
        "global_head_dim": full_dim,
        "num_key_value_heads": sliding_kv_heads,
        "num_global_key_value_heads": full_kv_heads,
        "rope_traditional": False,
    }


def _qwen3_5(architecture: MlxArchitecture) -> Arguments:
    config = architecture.config
    (parameters,) = rope_parameters(config)
    if getattr(config, "attn_output_gate", True) is not True:
        raise _unsupported(architecture, "attention without an output gate")
    if config.linear_conv_kernel_dim < 2:
        raise _unsupported(architecture, "a convolution of one row")
    return {
        "full_attention_interval": _interval(architecture),
        "rope_parameters": dict(parameters),
        "num_experts": 0,
    }


def _interval(architecture: MlxArchitecture) -> int:
    """Every how many layers one is of full attention: the library knows no other order."""
    kinds = architecture.layer_kinds
    interval = kinds.index(FULL) + 1 if FULL in kinds else len(kinds) + 1
    for index, kind in enumerate(kinds):
        if (kind == FULL) != ((index + 1) % interval == 0):
            raise _unsupported(architecture, "full_attention layers at uneven distances")
    if interval > len(kinds):
        raise _unsupported(architecture, "no layer of full_attention")
    return interval


def _check_whole(architecture: MlxArchitecture, parameters: dict[str, object]) -> None:
    """Raises unless RoPE turns whole heads."""
    if parameters.get("partial_rotary_factor", 1.0) not in (None, 1.0):
        raise _unsupported(architecture, "a partial_rotary_factor")


def _unsupported(architecture: MlxArchitecture, problem: str) -> ArchitectureUnsupported:
    return ArchitectureUnsupported(
        f"{architecture.name} with {problem} is not in mlx-lm's code",
        architecture=architecture.name,
    )

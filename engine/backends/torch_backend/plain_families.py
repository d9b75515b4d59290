"""Which of the library's models are of the one plain architecture, part by part.

Llama, Mistral, Qwen2 and Qwen3: attention behind a norm, then a gated
feed-forward layer behind a norm, each added to its input. The library's layers
are replaced only where their classes and their parts are exactly those known
here; what another version adds keeps the library's own code.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.packed_linear import GATE_UP

JOINT = (("q_proj", "k_proj", "v_proj"), GATE_UP)
"""Layers of the same input, whose products become one."""


class LibraryNorm(Protocol):
    """A norm of the library's."""

    weight: Tensor
    variance_epsilon: float


class LibraryAttention(Protocol):
    """An attention layer of the library's; Qwen3's has norms of its heads besides."""

    layer_idx: int
    head_dim: int
    scaling: float
    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    o_proj: nn.Linear


class LibraryMlp(Protocol):
    """A gated feed-forward layer of the library's."""

    gate_proj: nn.Linear
    up_proj: nn.Linear
    down_proj: nn.Linear
    act_fn: nn.Module


class LibraryLayer(Protocol):
    """A decoder layer of the library's."""

    self_attn: LibraryAttention
    mlp: LibraryMlp
    input_layernorm: LibraryNorm
    post_attention_layernorm: LibraryNorm


@dataclass(frozen=True, slots=True)
class _Parts:
    """The classes that a family's layers are made of, and whether heads have norms."""

    layer: type[nn.Module]
    attention: type[nn.Module]
    mlp: type[nn.Module]
    norm: type[nn.Module]
    rotary: type[nn.Module]
    head_norms: bool

    @classmethod
    def of(cls, library: ModuleType, prefix: str, *, head_norms: bool) -> _Parts:
        """Those of the library's module, whose names begin with the family's."""
        return cls(
            getattr(library, f"{prefix}DecoderLayer"),
            getattr(library, f"{prefix}Attention"),
            getattr(library, f"{prefix}MLP"),
            getattr(library, f"{prefix}RMSNorm"),
            getattr(library, f"{prefix}RotaryEmbedding"),
            head_norms,
        )


# The families' names in the library's modules, and whether their heads have norms.
_FAMILIES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
_WITH_HEAD_NORMS = ("qwen3",)


def _parts(model: PreTrainedModel) -> _Parts | None:
    """The parts of a model that is of a plain family by its class.

    Its module is there, since the model is: no other family's is imported.
    """
    for name, prefix in _FAMILIES.items():
        module = f"transformers.models.{name}.modeling_{name}"
        library = sys.modules.get(module)
        if library is not None and type(model) is getattr(library, f"{prefix}ForCausalLM"):
            return _Parts.of(library, prefix, head_norms=name in _WITH_HEAD_NORMS)
    return None


def is_plain(model: PreTrainedModel) -> bool:
    """Whether `model`, as the library builds it, is one of a plain family, part by part."""
    parts = _parts(model)
    if parts is None or type(model.model.rotary_emb) is not parts.rotary:
        return False
    body = {"embed_tokens", "layers", "norm", "rotary_emb"}
    whole = _has_children(model.model, body) and _has_children(model, {"model", "lm_head"})
    return whole and all(_is_plain_layer(layer, parts) for layer in model.model.layers)


def _is_plain_layer(layer: nn.Module, parts: _Parts) -> bool:
    norms = {"input_layernorm", "post_attention_layernorm"}
    if type(layer) is not parts.layer or not _has_children(layer, {"self_attn", "mlp", *norms}):
        return False
    attention, mlp = layer.self_attn, layer.mlp
    linears = {"q_proj", "k_proj", "v_proj", "o_proj"}
    head_norms = {"q_norm", "k_norm"} if parts.head_norms else set()
    return (
        type(attention) is parts.attention
        and _has_children(attention, linears | head_norms)
        and type(mlp) is parts.mlp
        and _has_children(mlp, {"gate_proj", "up_proj", "down_proj", "act_fn"})
        and all(type(getattr(attention, name)) is nn.Linear for name in linears)
        and all(type(getattr(attention, name)) is parts.norm for name in head_norms)
        and all(type(getattr(layer, name)) is parts.norm for name in norms)
    )


def _has_children(module: nn.Module, names: set[str]) -> bool:
    return {name for name, _ in module.named_children()} == names

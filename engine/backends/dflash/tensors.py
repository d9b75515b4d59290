"""The names and shapes of a DFlash checkpoint's tensors."""

from __future__ import annotations

from kakeya_fleet.engine.backends.dflash import confidence, convolution, selector
from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.version_2 import Version2

ENCODER = "fc.weight"
ENCODER_NORM = "hidden_norm.weight"
NORM = "norm.weight"


ATTENTION_CONVOLUTION = "attention_conv."
MLP_CONVOLUTION = "mlp_conv."
"""Around which sublayer of a layer a convolution of version 2 stands."""


def expected_shapes(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor: no embedding and no head.

    Version 1 has 3, and 11 a layer; version 2 has 3 more, 4 more a layer, and 2 of a
    confidence head.
    """
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        ENCODER: (hidden, len(config.taps) * hidden),
        ENCODER_NORM: (hidden,),
        NORM: (hidden,),
    }
    for index in range(config.layer_count):
        layer = f"layers.{index}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (config.query_size, hidden),
            f"{layer}self_attn.k_proj.weight": (config.key_size, hidden),
            f"{layer}self_attn.v_proj.weight": (config.key_size, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, config.query_size),
            f"{layer}self_attn.q_norm.weight": (head_dim,),
            f"{layer}self_attn.k_norm.weight": (head_dim,),
            f"{layer}mlp.gate_proj.weight": (inner, hidden),
            f"{layer}mlp.up_proj.weight": (inner, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, inner),
        }
    if config.version_2 is not None:
        shapes |= _shapes_2(config, config.version_2)
    return shapes


def _shapes_2(config: DFlashConfig, version_2: Version2) -> dict[str, tuple[int, ...]]:
    """Those that version 2 has beside."""
    hidden, rank = config.hidden_size, version_2.selector.rank
    taps, group_size = version_2.convolution.taps, version_2.convolution.group_size
    deltas = convolution.SIDES * taps * (hidden // group_size)
    shapes: dict[str, tuple[int, ...]] = {
        selector.PROJECTION: (rank, hidden),
        selector.PREDECESSORS: (config.vocabulary_size, rank),
        selector.SUCCESSORS: (config.vocabulary_size, rank),
    }
    for index in range(config.layer_count):
        for part in (ATTENTION_CONVOLUTION, MLP_CONVOLUTION):
            name = f"layers.{index}.{part}"
            shapes[name + convolution.BASE] = (convolution.SIDES, taps, hidden)
            shapes[name + convolution.PROJECTION] = (deltas, hidden)
    if version_2.confidence is not None:
        seen = hidden + (rank if version_2.confidence.with_predecessor else 0)
        shapes |= {confidence.WEIGHT: (1, seen), confidence.BIAS: (1,)}
    return shapes


def own_tensors(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Those of layers and norms: `expected_shapes` without the encoder's."""
    shapes = expected_shapes(config)
    return {name: shape for name, shape in shapes.items() if name not in (ENCODER, ENCODER_NORM)}

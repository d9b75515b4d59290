"""The names and shapes of a DFlash v1 checkpoint's tensors."""

from __future__ import annotations

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig

ENCODER = "fc.weight"
ENCODER_NORM = "hidden_norm.weight"
NORM = "norm.weight"


def expected_shapes(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor: 3 and 11 a layer, no embedding and no head."""
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
    return shapes


def own_tensors(config: DFlashConfig) -> dict[str, tuple[int, ...]]:
    """Those of layers and norms: `expected_shapes` without the encoder's."""
    shapes = expected_shapes(config)
    return {name: shape for name, shape in shapes.items() if name not in (ENCODER, ENCODER_NORM)}

"""A model of which the sizes alone are known: a table in a paper, a checkpoint on no disk."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer, KvLayout
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.contracts.positions import round_up
from kakeya_fleet.engine.models.own_dtype import AUTO, BFLOAT16, FLOAT32
from kakeya_fleet.engine.models.weight_choice import BF16, BITS, GROUP, whole_bytes

ITEM_BYTES = {FLOAT32: 4, BFLOAT16: 2}
UNBOUNDED = 2**32 - 1
"""Positions of a model that does not say how many: the most that a request can ask for."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """`layers` layers of `kv_heads` K/V heads of `head_dim` channels, and all its `parameters`.

    With `sliding_window` each query sees so many positions; 0 is all. `positions` 0 stands for
    a model whose number of them is not known.
    """

    layers: int
    kv_heads: int
    head_dim: int
    parameters: int
    positions: int = 0
    sliding_window: int = 0

    def on_paper(self, dtype: str = AUTO) -> ModelOnPaper:
        """The model in `dtype`, bfloat16 for `auto`.

        Of its weights all count alike: a head, which keeps eight bits of four, and embeddings,
        which are no product, take somewhat more; so does loading, by the tensor that is read.
        """
        number = BFLOAT16 if dtype == AUTO else dtype
        item = ITEM_BYTES[number]
        layer = AttentionLayer(self.kv_heads, 1, self.head_dim, self.sliding_window or None)
        numbers = round_up(self.parameters, GROUP)
        sizes = {
            AUTO: self.parameters * item,
            BF16: self.parameters * ITEM_BYTES[BFLOAT16],
            **{weights: whole_bytes(weights, 1, numbers) for weights in BITS},
        }
        return ModelOnPaper(
            name="a model of this shape",
            architecture="",
            dtype=number,
            layout=KvLayout((layer,) * self.layers, self.positions or UNBOUNDED, item),
            weight_bytes=sizes,
            loading_bytes=sizes,
            is_bounded=bool(self.positions),
        )

from __future__ import annotations

import pytest

from kakeya_fleet.engine.contracts.kv_layout import (
    AttentionLayer,
    KvLayout,
    Layer,
    RecurrentLayer,
    SharedLayer,
)

FULL = AttentionLayer(kv_heads=2, groups=2, head_dim=8)
OTHER = AttentionLayer(kv_heads=1, groups=4, head_dim=16)
SLIDING = AttentionLayer(kv_heads=1, groups=4, head_dim=16, sliding_window=24)
STATE = RecurrentLayer(100)


@pytest.mark.parametrize(
    ("layers", "count"),
    [
        ((FULL, FULL, OTHER), 3),
        ((FULL, SLIDING, STATE, SLIDING), 1),
        # A layer without keys of its own sees what the layer does whose keys it takes.
        ((FULL, SLIDING, SharedLayer(0), SharedLayer(1), SharedLayer(0)), 3),
        ((STATE, SLIDING), 0),
    ],
)
def test_layers_that_attend_to_all_of_the_history(layers: tuple[Layer, ...], count: int) -> None:
    assert KvLayout(layers, 4096, item_bytes=4).history_layer_count == count

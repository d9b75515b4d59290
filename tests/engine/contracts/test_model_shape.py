"""Models of which the sizes alone are known."""

from __future__ import annotations

import pytest
import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.parts import product_of
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_panels import whole_panels
from kakeya_fleet.engine.contracts.model_shape import UNBOUNDED, ModelShape
from kakeya_fleet.engine.models.weight_choice import BITS, INT4, INT8, whole_bytes

LLAMA = ModelShape(layers=32, kv_heads=32, head_dim=128, parameters=6_738_415_616)


def test_a_position_of_llama_2_7b_is_half_a_mebibyte() -> None:
    paper = LLAMA.on_paper()
    assert paper.layout.bytes_per_token == 2 * 32 * 32 * 128 * 2 == 1 << 19
    assert LLAMA.on_paper("float32").layout.bytes_per_token == 1 << 20
    assert (paper.layout.context_length, paper.is_bounded) == (UNBOUNDED, False)


def test_weights_are_counted_with_their_scales() -> None:
    paper = LLAMA.on_paper()
    assert paper.weight_bytes["auto"] == paper.weight_bytes["bf16"] == 2 * 6_738_415_616
    # 8 bits and a float16 of 32 numbers; 4 bits and two of them.
    assert paper.weight_bytes["int8"] == 6_738_415_616 * 17 // 16
    assert paper.weight_bytes["int4"] == 6_738_415_616 * 5 // 8
    assert paper.loading_bytes["auto"] == paper.weight_bytes["auto"]
    assert LLAMA.on_paper("float32").loading_bytes["auto"] == 2 * paper.loading_bytes["auto"]


@pytest.mark.parametrize("weights", [INT8, INT4])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 32), (64, 96), (128, 64)])
def test_whole_numbers_take_what_their_panels_do(weights: str, outputs: int, inputs: int) -> None:
    panels = whole_panels(product_of(torch.ones(outputs, inputs)), BITS[weights])
    assert whole_bytes(weights, outputs, inputs) == panels.blocks.nbytes


def test_positions_and_windows_are_those_that_are_given() -> None:
    shape = ModelShape(2, 8, 128, 1000, positions=4096, sliding_window=1024)
    paper = shape.on_paper()
    assert (paper.layout.context_length, paper.is_bounded) == (4096, True)
    assert paper.layout.restored_groups == ()

"""A drafter's compiled block and head against the layers by torch's operators."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash.candidates import largest_in_order
from kakeya_fleet.engine.backends.dflash.config import read_config
from kakeya_fleet.engine.backends.dflash.layered_block import LayeredBlock
from kakeya_fleet.engine.backends.dflash.model import DFlashModel
from kakeya_fleet.engine.backends.torch_backend.compiled import library as libraries
from kakeya_fleet.engine.backends.torch_backend.compiled.draft_structs import DRAFTER
from kakeya_fleet.engine.backends.torch_backend.compiled.whole_linear import WholeLinear
from kakeya_fleet.engine.backends.torch_backend.dflash.compiled_block import CompiledBlock
from kakeya_fleet.engine.backends.torch_backend.dflash.compiled_head import CompiledHead
from kakeya_fleet.engine.backends.torch_backend.dflash.kernels import TorchDraftKernels
from kakeya_fleet.engine.models.model_folder import ModelFolder
from tests.support.breadth import all_wide_but

FULL, SLIDING = "full_attention", "sliding_attention"
BLOCK = 12
MEDIAN, MOST = 0.08, 0.3
"""Of a block's norm is lost: keys and values are rounded to bfloat16, and a sum that differs in its
last bits to another number of eight bits here and there. That costs 0.04 of most blocks, and up to
0.13; a row that misses a key loses 0.3 of most."""
SHAPES: dict[str, dict[str, object]] = {
    "version 1": {"version": 1},
    "version 2": {"version": 2, "conv_group_size": 16},
    "one group": {"version": 2, "conv_group_size": 64, "conv_kernel_size": 3},
    "one tap": {"version": 2, "conv_group_size": 32, "conv_kernel_size": 1},
    "as many taps as rows": {"version": 2, "conv_group_size": 16, "conv_kernel_size": BLOCK},
    "causal": {"version": 2, "conv_group_size": 16, "is_causal": True},
    "narrow": {
        "version": 2,
        "conv_group_size": 16,
        "layer_types": [FULL, SLIDING],
        "sliding_window": 3,
        "is_causal": False,
    },
    "narrow and causal": {
        "version": 2,
        "conv_group_size": 16,
        "layer_types": [SLIDING, FULL],
        "sliding_window": 5,
    },
    "one key head": {"version": 2, "conv_group_size": 16, "num_key_value_heads": 1},
}
KEPT = ("version 1", "as many taps as rows", "narrow and causal")
CONTEXTS = (0, 1, 15, 16, 17, 130, 1019, 1200)
"""Positions; a block of 12 behind the last but one crosses the slots that are read at once."""


@pytest.fixture(autouse=True)
def _is_compiled() -> None:
    if libraries.library_of(DRAFTER) is None:
        pytest.skip("no compiled library is here")


@pytest.fixture
def threads() -> Iterator[None]:
    """Sets torch's back."""
    own = torch.get_num_threads()
    yield
    torch.set_num_threads(own)


@pytest.fixture(scope="module")
def target(random_checkpoint: Callable[..., Path]) -> ModelFolder:
    folder = random_checkpoint(
        "Qwen3ForCausalLM", hidden_size=64, head_dim=32, tie_word_embeddings=False
    )
    return ModelFolder(folder, "t")


@pytest.fixture
def drafter(
    target: ModelFolder, random_drafter: Callable[..., Path]
) -> Callable[..., DFlashModel[Tensor]]:
    """drafter(kernels, **options): a random drafter of its products."""

    def make(kernels: TorchDraftKernels, **options: object) -> DFlashModel[Tensor]:
        sizes = {"head_dim": 32, "intermediate_size": 96, "block_size": BLOCK}
        folder = random_drafter(target.path, **(sizes | options))
        config = read_config(folder)
        weights = kernels.read_weights(folder, config)
        return DFlashModel(kernels, config, weights, kernels.read_ends(target, config))

    return make


class LayerByLayer(TorchDraftKernels):
    """The same products, each by itself."""

    def whole_block(self, weights: object, config: object) -> None:
        """None."""


def hidden_of(model: DFlashModel[Tensor], positions: int, rows: int) -> Tensor:
    """What the head takes of a block behind a random context."""
    context = model.new_context()
    vectors = np.random.default_rng(positions).standard_normal((positions, 64), np.float32)
    for first in range(0, positions, 100):
        model.extend(context, vectors[first : first + 100])
    return model.block_hidden(context, 7, rows).clone()


@pytest.mark.parametrize("shape", all_wide_but(KEPT, sorted(SHAPES)))
def test_a_block_is_that_of_its_layers(
    shape: str, drafter: Callable[..., DFlashModel[Tensor]]
) -> None:
    compiled = drafter(TorchDraftKernels("bfloat16"), **SHAPES[shape])
    layered = drafter(LayerByLayer("bfloat16"), **SHAPES[shape])
    assert isinstance(compiled._block, CompiledBlock)
    assert isinstance(layered._block, LayeredBlock)
    lost: list[float] = []
    for positions in CONTEXTS:
        for rows in (1, 2, 8, BLOCK):
            found = hidden_of(compiled, positions, rows)
            expected = hidden_of(layered, positions, rows)
            assert found.shape == expected.shape
            lost.append(float((found - expected).norm() / expected.norm()))
            assert lost[-1] < MOST, f"{rows} rows behind {positions} positions: {lost[-1]:.3f}"
    assert statistics.median(lost) < MEDIAN, lost


@pytest.mark.usefixtures("threads")
def test_threads_change_no_bit(drafter: Callable[..., DFlashModel[Tensor]]) -> None:
    model = drafter(TorchDraftKernels("bfloat16"), **SHAPES["version 2"])
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        hidden = hidden_of(model, 40, BLOCK)
        found.append((hidden, *(torch.from_numpy(each) for each in model._candidates(hidden, 9))))
    for others in found[1:]:
        assert all(map(torch.equal, found[0], others))


def test_vectors_that_overflow_still_make_a_draft(
    drafter: Callable[..., DFlashModel[Tensor]],
) -> None:
    model = drafter(TorchDraftKernels("bfloat16"), **SHAPES["version 2"])
    context = model.new_context()
    model.extend(context, np.full((20, 64), 3e38, np.float32))
    tokens = model.draft(context, 7, BLOCK - 1)
    assert len(tokens) == BLOCK - 1
    assert all(0 <= token < model.config.vocabulary_size for token in tokens)


def test_where_the_library_cannot_be_made_layers_are_computed_one_by_one(
    drafter: Callable[..., DFlashModel[Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = libraries._made

    def failing(options: tuple[str, ...], recipe: libraries.Recipe = libraries.DECODER) -> Path:
        if recipe is DRAFTER:
            raise libraries.CompilingFailed("pretended")
        return own(options)

    monkeypatch.setattr(libraries, "_made", failing)
    model = drafter(TorchDraftKernels("bfloat16"), **SHAPES["version 2"])
    assert isinstance(model._block, LayeredBlock)
    context = model.new_context()
    model.extend(context, np.ones((20, 64), np.float32))
    assert len(model.draft(context, 7, 5)) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"intermediate_size": 80},
        {"head_dim": 16},
        {"version": 2, "conv_group_size": 8},
    ],
    ids=str,
)
def test_another_drafter_goes_layer_by_layer(
    options: dict[str, object], drafter: Callable[..., DFlashModel[Tensor]]
) -> None:
    model = drafter(TorchDraftKernels("bfloat16"), **options)
    assert isinstance(model._block, LayeredBlock)
    assert hidden_of(model, 20, 5).isfinite().all()


def test_in_float32_nothing_is_kept_in_eight_bits(
    drafter: Callable[..., DFlashModel[Tensor]],
) -> None:
    assert isinstance(drafter(TorchDraftKernels("float32"))._block, LayeredBlock)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("size", [32, 97, 1000])
def test_candidates_are_the_largest_logits(size: int) -> None:
    """Of equal ones the smaller id comes first, also where threads find them; no padding is one."""
    torch.manual_seed(size)
    weight = torch.randn(size, 64)
    weight[size // 2 :] = weight[: size - size // 2].clone()
    head = TorchDraftKernels("bfloat16")._whole(-weight.abs().to(torch.bfloat16))
    library = libraries.library_of(DRAFTER)
    assert isinstance(head, WholeLinear)
    assert library is not None
    largest = CompiledHead(library, head.panels)
    for count in (1, 16, 32):
        for rows in (1, 7, 11):
            hidden = torch.rand(rows, 64)
            logits = head.forward(hidden).numpy()
            expected = np.argsort(-logits, axis=1, kind="stable")[:, :count]
            for threads in (1, 3):
                torch.set_num_threads(threads)
                ids, values = largest(hidden, count)
                np.testing.assert_array_equal(ids, expected)
                np.testing.assert_array_equal(values, np.take_along_axis(logits, ids, axis=1))
            np.testing.assert_array_equal(values, largest_in_order(logits, count)[1])


def test_of_numbers_that_are_none_some_ids_are_candidates() -> None:
    head = TorchDraftKernels("bfloat16")._whole(torch.ones(97, 64, dtype=torch.bfloat16))
    library = libraries.library_of(DRAFTER)
    assert head is not None
    assert library is not None
    ids, values = CompiledHead(library, head.panels)(torch.full((2, 64), torch.nan), 16)
    assert ids.tolist() == [list(range(16))] * 2
    assert not np.isfinite(values).any()

"""A recurrent layer's state: exact whatever the cuts, rolled back, forked, and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    Qwen3_5GatedDeltaNet,
    causal_conv1d_fn,
    torch_recurrent_gated_delta_rule,
)

from kakeya_fleet.engine.backends.torch_backend.activation import (
    PiecewiseActivation,
    PiecewiseFunctions,
)
from kakeya_fleet.engine.backends.torch_backend.delta_rule import DeltaRule
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.recurrent_shape import (
    JOURNAL_TOKENS,
    RecurrentShape,
)
from tests.support.breadth import all_wide_but

TOKENS = 90
SIZES = {
    "even": {"linear_num_key_heads": 2, "linear_num_value_heads": 4},
    # Rows of a block then start at no multiple of a vector.
    "odd": {
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 3,
        "linear_key_head_dim": 5,
        "linear_value_head_dim": 7,
        "linear_conv_kernel_dim": 3,
    },
    # Blocks large enough that threads share them.
    "large": {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    },
}


# Sizes, threads and dtype: each pair but those of one thread and large blocks.
CASES = (
    ("even", 1, torch.float32),
    ("even", 3, torch.bfloat16),
    ("odd", 3, torch.float32),
    ("odd", 1, torch.bfloat16),
    ("large", 3, torch.float32),
    ("large", 3, torch.bfloat16),
)


# Each dtype and each number of threads.
KEPT = [CASES[0], CASES[1], CASES[2]]


@pytest.fixture(scope="module", params=all_wide_but(KEPT, CASES), ids=str)
def case(request: pytest.FixtureRequest) -> Iterator[tuple[str, torch.dtype]]:
    """The sizes and the dtype; the threads are set."""
    sizes, threads, dtype = request.param
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    yield sizes, dtype
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def layer(case: tuple[str, torch.dtype]) -> Qwen3_5GatedDeltaNet:
    sizes = {"linear_key_head_dim": 16, "linear_value_head_dim": 16} | SIZES[case[0]]
    config = Qwen3_5TextConfig(
        hidden_size=32, layer_types=["linear_attention"], num_hidden_layers=1, **sizes
    )
    torch.manual_seed(0)
    layer = Qwen3_5GatedDeltaNet(config, 0)
    layer.config = config
    with torch.no_grad():
        layer.A_log.uniform_(-6, -1)
        layer.dt_bias.normal_()
        layer.conv1d.weight.normal_()
    return layer.requires_grad_(requires_grad=False)


@pytest.fixture(scope="module")
def rule(case: tuple[str, torch.dtype], layer: Qwen3_5GatedDeltaNet) -> DeltaRule:
    return DeltaRule(layer, RecurrentShape.of(layer.config, case[1]))


@pytest.fixture(scope="module")
def rows(rule: DeltaRule) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = rule.shape
    inputs = torch.randn(TOKENS, shape.channels, generator=generator)
    gates = torch.randn(TOKENS, 2, shape.value_heads, generator=generator)
    return inputs.to(shape.dtype), gates.to(shape.dtype)


@pytest.fixture(scope="module")
def single_steps(rule: DeltaRule, rows: tuple[Tensor, Tensor]) -> Tensor:
    state = RecurrentState(rule)
    inputs, gates = rows
    return torch.cat([state.extend(inputs[i : i + 1], gates[i : i + 1]) for i in range(TOKENS)])


def test_it_is_the_librarys_rule(
    layer: Qwen3_5GatedDeltaNet, rule: DeltaRule, rows: tuple[Tensor, Tensor], single_steps: Tensor
) -> None:
    inputs, gates = (part.float() for part in rows)
    mixed = causal_conv1d_fn(inputs.t()[None], layer.conv1d.weight[:, 0], None, layer.activation)
    parts = mixed[0].t().split([layer.key_dim, layer.key_dim, layer.value_dim], dim=1)
    heads = [
        part.reshape(1, TOKENS, -1, size)
        for part, size in zip(
            parts, (layer.head_k_dim, layer.head_k_dim, layer.head_v_dim), strict=True
        )
    ]
    decay = -layer.A_log.exp() * functional.softplus(gates[:, 1] + layer.dt_bias)
    expected, _ = torch_recurrent_gated_delta_rule(
        *heads,
        g=decay[None],
        beta=gates[None, :, 0].sigmoid(),
        use_qk_l2norm_in_kernel=True,
    )
    bound = 1e-4 if rule.shape.dtype == torch.float32 else 0.05
    error = (single_steps - expected[0]).abs().max()
    assert error < bound * expected.abs().max()


@settings(deadline=None, max_examples=6)
@given(cuts=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 8)), min_size=1, max_size=12))
def test_cuts_and_rejected_tokens_change_no_bits(
    rule: DeltaRule,
    rows: tuple[Tensor, Tensor],
    single_steps: Tensor,
    cuts: list[tuple[int, int]],
) -> None:
    """`cuts`: right and then rejected tokens of each forward."""
    inputs, gates = rows
    state = RecurrentState(rule)
    done = 0
    for wanted, wrong in (*cuts, (16, 1)):
        right = min(wanted, TOKENS - done)
        if not right + wrong:
            continue
        block = torch.cat((inputs[done : done + right], -inputs[:wrong]))
        block_gates = torch.cat((gates[done : done + right], -gates[:wrong]))
        got = state.extend(block, block_gates)
        assert torch.equal(got[:right], single_steps[done : done + right])
        if wrong:
            state.truncate(right)
        done += right


def test_a_full_journal_is_rolled_back_to_any_token(
    rule: DeltaRule, rows: tuple[Tensor, Tensor], single_steps: Tensor
) -> None:
    inputs, gates = rows
    state = RecurrentState(rule)
    state.extend(inputs[:9], gates[:9])
    state.extend(inputs[9 : 9 + JOURNAL_TOKENS], gates[9 : 9 + JOURNAL_TOKENS])
    for kept in range(JOURNAL_TOKENS, -1, -7):
        state.truncate(kept)
        fork = state.fork(kept)
        end = min(TOKENS, 9 + kept + 4)
        got = fork.extend(inputs[9 + kept : end], gates[9 + kept : end])
        assert torch.equal(got, single_steps[9 + kept : end]), kept
    with pytest.raises(ValueError, match="cannot keep"):
        state.truncate(JOURNAL_TOKENS)


def test_what_is_settled_stays(rule: DeltaRule, rows: tuple[Tensor, Tensor]) -> None:
    inputs, gates = rows
    state = RecurrentState(rule)
    state.extend(inputs[:5], gates[:5])
    state.settle()
    with pytest.raises(ValueError, match="cannot keep 1 tokens of 0"):
        state.truncate(1)
    state.truncate(0)
    again = RecurrentState(rule)
    again.extend(inputs[:5], gates[:5])
    assert torch.equal(state.extend(inputs[5:8], gates[5:8]), again.extend(inputs[5:8], gates[5:8]))


def test_a_block_beyond_the_journal_is_refused(
    rule: DeltaRule, rows: tuple[Tensor, Tensor]
) -> None:
    inputs, gates = rows
    for count in (0, JOURNAL_TOKENS + 1):
        with pytest.raises(ValueError, match="a forward takes 1 to"):
            RecurrentState(rule).extend(inputs[:count], gates[:count])


def test_bytes_are_those_of_the_tensors(rule: DeltaRule, rows: tuple[Tensor, Tensor]) -> None:
    state = RecurrentState(rule)
    inputs, gates = rows

    def held() -> int:
        tensors = {
            part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
            for part in vars(state).values()
            if isinstance(part, Tensor)
        }
        return sum(tensors.values())

    assert held() == sum(part.nbytes for part in state.arrays) == rule.shape.state_bytes
    state.extend(inputs[:40], gates[:40])
    state.truncate(3)
    state.extend(inputs[:40], gates[:40])
    assert held() == sum(part.nbytes for part in state.arrays) == rule.shape.state_bytes


@pytest.mark.parametrize(
    ("function", "module"),
    [(torch.sigmoid, nn.Sigmoid()), (functional.silu, nn.SiLU())],
    ids=["sigmoid", "silu"],
)
def test_gates_do_not_depend_on_the_place(
    function: Callable[[Tensor], Tensor], module: nn.Module
) -> None:
    values = torch.linspace(-9, 9, 90_112).flip(0)
    with PiecewiseFunctions():
        whole = function(values)
        for size in (1, 63, 64, 32_704, 32_705, 90_112):
            assert torch.equal(whole[-size:], function(values[-size:])), size
    wrapped = PiecewiseActivation(module)
    assert torch.equal(wrapped(values), whole)
    assert torch.allclose(whole, function(values), rtol=1e-6, atol=1e-7)

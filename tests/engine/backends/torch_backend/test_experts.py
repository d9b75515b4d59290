"""Experts: whose rows share a product changes no bit, and the library's sum comes out."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from kakeya_fleet.engine.backends.torch_backend import expert_groups
from kakeya_fleet.engine.backends.torch_backend.activation import gated
from kakeya_fleet.engine.backends.torch_backend.expert_groups import (
    ALONE,
    SIZES,
    GroupSizes,
    agreeing_sizes,
)
from kakeya_fleet.engine.backends.torch_backend.experts import (
    Expert,
    Experts,
    Grouping,
    clamped_gate,
    lay_out_experts,
)
from kakeya_fleet.engine.backends.torch_backend.packed_linear import packed_linears

COUNT, HIDDEN, INNER, CHOSEN = 6, 64, 40, 3
ROWS = 37


def plain(linear: nn.Linear) -> nn.Module:
    """The library's own product, whose kernel depends on the number of rows."""
    return linear


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


def experts_of(dtype: torch.dtype) -> Experts:
    torch.manual_seed(0)
    made = Experts(
        partial(gated, functional.silu), (Expert(HIDDEN, INNER, bias=True) for _ in range(COUNT))
    )
    return made.to(dtype).requires_grad_(requires_grad=False)


def routed(rows: int, dtype: torch.dtype, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, experts and shares; the last expert is everyone's, the first nobody's."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, HIDDEN, generator=generator).to(dtype)
    scores = torch.rand(rows, COUNT, generator=generator)
    scores[:, -1], scores[:, 0] = 2, 0
    shares, chosen = scores.topk(CHOSEN)
    return hidden, chosen, shares


@torch.inference_mode()
def as_the_library(experts: Experts, hidden: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """The sum in double precision, one row and one expert after the other."""
    total = torch.zeros(len(hidden), HIDDEN, dtype=torch.float64)
    for row, own in enumerate(chosen.tolist()):
        for place, index in enumerate(own):
            expert = experts[index].double()
            values = hidden[row].double()
            inner = functional.silu(expert.gate_proj(values)) * expert.up_proj(values)
            total[row] += shares[row, place].double() * expert.down_proj(inner)
    return total


@pytest.mark.parametrize("made", [plain, None], ids=["plain", "packed"])
def test_a_rows_bits_are_its_own(dtype: torch.dtype, made: object) -> None:
    """In any company, at any place, whatever products torch has."""
    experts = experts_of(dtype)
    lay_out_experts(
        nn.Sequential(experts), plain if made is plain else packed_linears(dtype, 16).layer, {}
    )
    hidden, chosen, shares = routed(ROWS, dtype)
    alone = torch.cat([experts(hidden[[row]], chosen[[row]], shares[[row]]) for row in range(ROWS)])
    rng = random.Random(3)
    for count in (2, 3, 7, 16, ROWS):
        rows = rng.sample(range(ROWS), count)
        together = experts(hidden[rows], chosen[rows], shares[rows])
        assert torch.equal(together, alone[rows]), f"{count} rows {rows}"
    # And in whatever order a router names them.
    assert torch.equal(experts(hidden, chosen.flip(1), shares.flip(1)), alone)


def test_the_sum_is_that_of_the_experts(dtype: torch.dtype) -> None:
    experts, whole = experts_of(dtype), experts_of(dtype)
    lay_out_experts(nn.Sequential(experts), packed_linears(dtype, 16).layer, {})
    routes = routed(ROWS, dtype)
    expected = as_the_library(whole, *routes)
    error = (experts(*routes).double() - expected).abs().max()
    assert 0 < error < (1e-5 if dtype == torch.float32 else 5e-2) * expected.abs().max()


def test_rows_that_are_no_tokens_ask_no_expert() -> None:
    experts = experts_of(torch.float32)
    asked: list[int] = []

    def counted(linear: nn.Linear) -> nn.Module:
        linear.register_forward_pre_hook(lambda _, given: asked.append(len(given[0])))
        return linear

    lay_out_experts(nn.Sequential(experts), counted, {})
    hidden, chosen, shares = routed(16, torch.float32)
    whole = experts(hidden, chosen, shares)
    asked.clear()
    experts.rows = 1
    found = experts(hidden, chosen, shares)
    assert torch.equal(found[0], whole[0])
    assert not found[1:].any()
    # Two products of each of its experts, of as many rows as any other.
    assert len(asked) == 2 * CHOSEN
    assert set(asked) == {SIZES[0]}


def test_every_group_has_an_agreed_size() -> None:
    rng = random.Random(5)
    for sizes in ((4, 8, 16, 32, 64), (8,), (1,), (4, 16)):
        for rows in (1, 2, 5, 16, 64):
            chosen = [rng.sample(range(9), 4) for _ in range(rows)]
            grouping = Grouping.of(chosen, sizes)
            assert {size for _, size in grouping.products} <= set(sizes)
            assert sum(size for _, size in grouping.products) == len(grouping.sources)
            # Each choice lies at a place of its own, in a product of its expert, with its row.
            experts = [each for each, size in grouping.products for _ in range(size)]
            flat = [(row, expert) for row, own in enumerate(chosen) for expert in own]
            assert len(set(grouping.places)) == len(flat)
            found = [(grouping.sources[place], experts[place]) for place in grouping.places]
            assert found == flat


class Odd(nn.Module):
    """Rounds a row by the number of rows, or by its place among them."""

    def __init__(self, *, by_place: bool, inexact: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._by_place = by_place
        self._inexact = inexact

    def forward(self, values: Tensor) -> Tensor:
        rows = len(values)
        places = torch.arange(rows)[:, None] if self._by_place else 0
        return values + places + (1 if rows in self._inexact else 0)


def test_sizes_of_other_kernels_are_found_out() -> None:
    find = partial(agreeing_sizes, inputs=8, dtype=torch.float32)
    assert find(Odd(by_place=False)) == SIZES
    assert find(Odd(by_place=False, inexact=(8, 64))) == (4, 16, 32)
    assert find(Odd(by_place=True)) == ()


def test_where_no_group_is_exact_each_row_is_alone() -> None:
    sizes = GroupSizes({})
    sizes.add(Odd(by_place=True), 8, 8, torch.float32)
    assert sizes.agreeing() == ALONE
    chosen = [[0, 1], [1, 2]]
    assert [size for _, size in Grouping.of(chosen, ALONE).products] == [1] * 4


def test_all_products_of_a_layer_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    known: expert_groups.Known = {}
    sizes = GroupSizes(known)
    sizes.add(Odd(by_place=False, inexact=(8,)), 8, 8, torch.float32)
    sizes.add(nn.Identity(), 8, 8, torch.float32)
    assert sizes.agreeing() == (4, 16, 32, 64)
    # The next layer's are of the same kinds: nothing is tried again.
    monkeypatch.setattr(expert_groups, "agreeing_sizes", None)
    other = GroupSizes(known)
    other.add(Odd(by_place=False, inexact=(8,)), 8, 8, torch.float32)
    assert other.agreeing() == (4, 16, 32, 64)


def test_a_clamped_gate_is_gpt_oss_own() -> None:
    both = torch.randn(1, 7, 2 * 24, generator=torch.Generator().manual_seed(2)) * 6
    gate, up = both[..., :24].clamp(max=7), both[..., 24:].clamp(-7, 7)
    expected = (up + 1) * gate * torch.sigmoid(1.702 * gate)
    assert (both.abs() > 7).any()
    assert torch.allclose(clamped_gate(1.702, 7.0, both), expected, rtol=1e-6)

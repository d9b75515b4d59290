"""Least squares in pieces is that of all rows, and a cut map is the nearest one."""

from __future__ import annotations

import torch

from scripts.train.regression import Regression, layer_scale

LAYERS, SIZE = 2, 3


def fitted() -> tuple[Regression, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(5)
    inputs = torch.randn(90, 8, generator=draws, dtype=torch.float64)
    outputs = inputs @ torch.randn(8, 2 * LAYERS * SIZE, generator=draws, dtype=torch.float64)
    outputs += 0.3 * torch.randn(outputs.shape, generator=draws, dtype=torch.float64)
    # Values of the last layer are large: they count as much as the others all the same.
    outputs[:, -SIZE:] *= 50
    found = Regression(8, outputs.shape[1])
    for first in (0, 1, 40):
        last = {0: 1, 1: 40, 40: 90}[first]
        found.add(inputs[first:last], outputs[first:last])
    return found, inputs, outputs


def test_it_is_fitted_on_all_rows_whatever_they_came_in() -> None:
    found, inputs, outputs = fitted()
    expected = torch.linalg.lstsq(inputs, outputs).solution
    torch.testing.assert_close(found.fitted(), expected, rtol=1e-4, atol=1e-4)
    errors = (inputs @ expected - outputs).square().mean(0)
    torch.testing.assert_close(found.error_of(expected), errors)
    torch.testing.assert_close(found.output_squares, outputs.square().mean(0))
    torch.testing.assert_close(found.squares_of(expected), (inputs @ expected).square().mean(0))


def test_a_cut_map_is_the_nearest_of_its_rank_with_layers_alike() -> None:
    found, inputs, _ = fitted()
    full = found.fitted()
    made = inputs @ full
    scale = layer_scale(found.squares_of(full), LAYERS)
    torch.testing.assert_close(
        scale.view(-1, SIZE)[:, 0], made.view(90, -1, SIZE).square().mean((0, 2)).sqrt()
    )
    singular = torch.linalg.svdvals(made / scale)
    for rank in (1, 3, 7):
        down, up = found.cut(full, LAYERS, rank)
        assert down.shape == (rank, 8)
        left = ((inputs @ down.T @ up.T - made) / scale).square().sum()
        torch.testing.assert_close(left, singular[rank:].square().sum(), rtol=1e-3, atol=1e-6)

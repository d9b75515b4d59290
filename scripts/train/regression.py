"""Least squares over more rows than fit in memory, and the nearest map of a rank.

Reduced-rank regression (Izenman, 1975), by way of the normal equations: what is kept is as large
as the matrices that are sought, whatever number of rows they are fitted on.
"""

from __future__ import annotations

import torch

RIDGE = 1e-6
"""Of each input's mean square, added to the normal matrix."""


class Regression:
    """A linear map from inputs to outputs, from rows that are added."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        device: torch.device | str = "cpu",
        *,
        ridge: float = RIDGE,
    ) -> None:
        self.count = 0
        self._ridge = ridge
        self._inputs = torch.zeros(inputs, inputs, dtype=torch.float64, device=device)
        self._both = torch.zeros(inputs, outputs, dtype=torch.float64, device=device)
        self._squares = torch.zeros(outputs, dtype=torch.float64, device=device)

    def add(self, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
        """Rows of inputs [n, inputs] and of what is to come of them [n, outputs]."""
        inputs, outputs = inputs.double(), outputs.double()
        self.count += len(inputs)
        self._inputs += inputs.T @ inputs
        self._both += inputs.T @ outputs
        self._squares += outputs.square().sum(0)

    def of(self, columns: torch.Tensor) -> Regression:
        """The same of some inputs, [n] of their numbers."""
        part = Regression(0, 0, ridge=self._ridge)
        part.count = self.count
        part._inputs = self._inputs[columns][:, columns]
        part._both = self._both[columns]
        part._squares = self._squares
        return part

    @property
    def products(self) -> torch.Tensor:
        """inputs^T inputs of all rows, [inputs, inputs]."""
        return self._inputs

    @property
    def output_squares(self) -> torch.Tensor:
        """The mean square of each output, [outputs]."""
        found: torch.Tensor = self._squares / self.count
        return found

    def fitted(self) -> torch.Tensor:
        """The matrix [inputs, outputs] with the least squared error."""
        found: torch.Tensor = torch.linalg.solve(self._normal(), self._both)
        return found

    def squares_of(self, full: torch.Tensor) -> torch.Tensor:
        """The mean square of each output that `full` [inputs, outputs] makes, [outputs]."""
        made: torch.Tensor = (full * (self._inputs @ full)).sum(0) / self.count
        return made

    def error_of(self, full: torch.Tensor) -> torch.Tensor:
        """The mean squared error of each output of `full` [inputs, outputs], [outputs]."""
        missed: torch.Tensor = self._squares - 2 * (full * self._both).sum(0)
        return missed / self.count + self.squares_of(full)

    def directions(self, full: torch.Tensor, count: int) -> torch.Tensor:
        """The principal directions of inputs @ `full` [inputs, outputs], [outputs, count].

        By way of the inputs, which are fewer than the outputs: with normal = L L^T, those of
        L^T full.
        """
        seen = torch.linalg.cholesky(self._normal()).T @ full
        values, left = torch.linalg.eigh(seen @ seen.T)
        scale = values[-count:].clamp(min=1e-30).sqrt()
        found: torch.Tensor = seen.T @ left[:, -count:] / scale
        return found

    def cut(self, full: torch.Tensor, layers: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Down [rank, inputs] and up [outputs, rank] of the nearest map of a rank.

        Nearest to `full` [inputs, outputs] on what it makes of the inputs, the keys and the values
        of each of so many layers counting alike (Eckart and Young, 1936).
        """
        scale = layer_scale(self.squares_of(full), layers)
        directions = self.directions(full / scale, rank)
        return (full / scale @ directions).T, directions * scale[:, None]

    def _normal(self) -> torch.Tensor:
        normal = self._inputs.clone()
        squares = normal.diagonal()
        # One that is always 0 has a weight that does not matter.
        squares += self._ridge * squares.clamp(min=squares.mean() * RIDGE)
        return normal


def layer_scale(squares: torch.Tensor, layers: int) -> torch.Tensor:
    """By which each layer's keys, and its values, count as much as any other's, [outputs].

    Of the mean square of each output, of all keys of the first layer, its values, and so on.
    """
    size = len(squares) // (2 * layers)
    scale: torch.Tensor = squares.view(-1, size).mean(1).sqrt().repeat_interleave(size)
    return scale

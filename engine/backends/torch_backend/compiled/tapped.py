"""Outputs of layers that somebody wants to see, as the library keeps them of a forward."""

from __future__ import annotations

from collections.abc import Collection

import torch

from kakeya_fleet.engine.contracts.features import Features

NOTHING = torch.empty(0, 0, 0)


class Tapped:
    """What `taps` gave, layers from 0 in ascending order: `outputs` [rows, taps, hidden]."""

    def __init__(self, taps: Collection[int], rows: int, hidden: int) -> None:
        self.taps = tuple(sorted(taps))
        self.outputs = torch.empty(rows, len(self.taps), hidden) if self.taps else NOTHING

    def place(self, tap: int) -> int:
        """Where it is among the taps; -1 for none of them."""
        return self.taps.index(tap) if tap in self.taps else -1

    def features(self, taps: tuple[int, ...], first: int, count: int) -> Features:
        """What some taps gave for some rows, [n, taps, hidden], in memory of its own."""
        rows: Features = self.outputs.numpy()[first : first + count]
        if taps == self.taps:
            # To look each of them up takes ten times as long.
            return rows.copy()
        return rows[:, [self.taps.index(tap) for tap in taps]]

"""Keys and values of older positions, frozen on a schedule of positions.

With attention in both directions a position's keys and values change with every
token behind it, and so in every pass. Here they are computed once, for a chunk of
positions at a time, in one clean pass that sees the chunk and what was frozen
before it; a block is then denoised behind what is frozen, and a pass costs the
block and less than two chunks. It is an approximation of the model, except of one
trained that way (block diffusion: Arriola et al., 2025); what is frozen is a
function of the history alone, however it arrived, since chunks begin at multiples
of their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.context import View, check_ids
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.model import (
    KeysValues,
    MaskedModel,
    Past,
)


class FrozenPredictor:
    """The model behind frozen positions: texts start at position `first`."""

    def __init__(self, model: MaskedModel, past: Past) -> None:
        self._model = model
        self._past = past
        self.mask_token_id = model.mask_token_id
        self.prediction_shift = model.prediction_shift

    def log_probabilities(self, ids: Tensor, rows: Sequence[int]) -> Tensor:
        """See `MaskedModel.log_probabilities`."""
        return self._model.log_probabilities(ids, rows, self._past)


@dataclass(frozen=True, slots=True)
class Frozen:
    """What is frozen before position `end`, by layer, as much of it as is still seen."""

    end: int
    layers: tuple[KeysValues, ...]

    def past(self, first: int, room: int) -> Past:
        """The latest positions, at most `room`, for a text from position `first` on."""
        latest = [(keys[:, :, -room:], values[:, :, -room:]) for keys, values in self.layers]
        return Past(first, tuple(latest) if room else ())


class FrozenContext:
    """A session's frozen keys and values and the tokens behind them.

    At least one token stays unfrozen: with shift 1 its row predicts the block's
    first. A chunk, and a block with the tokens before it, see the frozen positions
    that fit beside them into `window`.
    """

    def __init__(self, model: MaskedModel, chunk: int, window: int) -> None:
        self._model = model
        self._chunk = chunk
        self._window = window
        self._tail: list[int] = []
        self._frozen = Frozen(0, ())

    def extend(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens; they are frozen when a view asks for it."""
        self._tail.extend(token_ids)

    def view(self, assumed: Sequence[int], block_size: int) -> View:
        """The unfrozen tokens, behind the frozen positions; see `Context`.

        The same as after `assumed` had been appended: the chunks that it completes
        are frozen for this view alone.
        """
        check_ids([*self._tail, *assumed], self._model.vocabulary_size)
        self._frozen, self._tail = self._advanced(self._frozen, self._tail)
        frozen, tail = self._advanced(self._frozen, [*self._tail, *assumed])
        seen = tail[-(self._window - block_size) :]
        first = frozen.end + len(tail) - len(seen)
        past = frozen.past(first, self._window - block_size - len(seen))
        return View(FrozenPredictor(self._model, past), seen)

    def _advanced(self, frozen: Frozen, tail: list[int]) -> tuple[Frozen, list[int]]:
        """What is frozen, and what is left over, once every chunk of `tail` is."""
        while len(tail) > self._chunk:
            frozen = self._with_chunk(frozen, tail[: self._chunk])
            tail = tail[self._chunk :]
        return frozen, tail

    def _with_chunk(self, frozen: Frozen, token_ids: list[int]) -> Frozen:
        past = frozen.past(frozen.end, self._window - self._chunk)
        found = self._model.keys_values(torch.tensor([token_ids]), past)
        before = frozen.layers or [(keys[:, :, :0], values[:, :, :0]) for keys, values in found]
        layers = tuple(
            (
                torch.cat([old_keys, keys], 2)[:, :, -self._window :],
                torch.cat([old_values, values], 2)[:, :, -self._window :],
            )
            for (old_keys, old_values), (keys, values) in zip(before, found, strict=True)
        )
        return Frozen(frozen.end + self._chunk, layers)

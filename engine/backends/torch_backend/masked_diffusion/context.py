"""What one pass sees of a session's text, computed whole each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.denoising import Predictor
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind


@dataclass(frozen=True, slots=True)
class View:
    """The tokens that passes compute before the block, and what predicts behind them."""

    predictor: Predictor
    token_ids: list[int]


class Context(Protocol):
    """A session's committed tokens, as far as its drafts depend on them."""

    def extend(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens."""
        ...

    def view(self, assumed: Sequence[int], block_size: int) -> View:
        """What comes before a block behind history + `assumed`, which is not kept.

        Raises `DraftFailed` (OUT_OF_VOCABULARY) for ids that are not the model's.
        """
        ...


class WholeContext:
    """The latest tokens: as many as a pass of `window` positions has room for."""

    def __init__(self, model: Predictor, vocabulary_size: int, window: int) -> None:
        self._model = model
        self._vocabulary_size = vocabulary_size
        self._window = window
        self._latest: deque[int] = deque(maxlen=window - 1)

    def extend(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens."""
        self._latest.extend(token_ids[-(self._window - 1) :])

    def view(self, assumed: Sequence[int], block_size: int) -> View:
        """The latest tokens that fit beside the block; see `Context`."""
        seen = [*self._latest, *assumed][-(self._window - block_size) :]
        check_ids(seen, self._vocabulary_size)
        return View(self._model, seen)


def check_ids(token_ids: Sequence[int], vocabulary_size: int) -> None:
    """Raises `DraftFailed` (OUT_OF_VOCABULARY)."""
    if token_ids and not 0 <= min(token_ids) <= max(token_ids) < vocabulary_size:
        raise DraftFailed(
            DraftFaultKind.OUT_OF_VOCABULARY,
            f"the history has ids outside 0..{vocabulary_size - 1}, the proposer's vocabulary",
        )

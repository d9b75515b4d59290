"""What a masked model must do before anything it says is used."""

from __future__ import annotations

import torch

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.model import MaskedModel
from kakeya_fleet.engine.errors import ArchitectureUnsupported

SHORT = 8
"""Positions of the texts that are compared; fewer than any model's local attention sees."""


def check_soundness(name: str, model: MaskedModel, window: int) -> None:
    """Runs the model `name` and raises `ArchitectureUnsupported` for what it cannot do.

    It must take `window` positions, its first row must see the tokens behind it
    (else it is causal, whatever its config says), and its head must give a row the
    same numbers alone and among others.
    """
    generator = torch.Generator().manual_seed(0)
    whole = torch.randint(model.vocabulary_size, (1, window), generator=generator)
    try:
        model.log_probabilities(whole, [0])
    except (IndexError, LookupError, RuntimeError, TypeError) as error:
        raise ArchitectureUnsupported(
            f"{name} does not run on {window} positions: {error!r}", architecture=name
        ) from error
    length = min(SHORT, window)
    texts = whole[:, :length].repeat(2, 1)
    texts[1, 1:] = (texts[1, 1:] + 1) % model.vocabulary_size
    rows = model.log_probabilities(texts, range(length))
    if length > 1 and torch.equal(rows[0, 0], rows[1, 0]):
        raise ArchitectureUnsupported(
            f"{name} is causal: its first row sees no token behind it", architecture=name
        )
    last = model.log_probabilities(texts, [length - 1])[:, 0]
    finite = rows[:, -1].isfinite()
    if not torch.allclose(last[finite], rows[:, -1][finite], rtol=1e-2, atol=1e-2):
        raise ArchitectureUnsupported(
            f"{name} predicts a row otherwise alone than among others", architecture=name
        )

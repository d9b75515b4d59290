"""Models on paper, as `fleet fit` and `fleet run` ask about them: headers, read once each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.shell.failure import CommandFailed

if TYPE_CHECKING:
    from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
    from kakeya_fleet.engine.contracts.model_shape import ModelShape


class Papers:
    """A model by the back end that would compute it, read once each."""

    def __init__(
        self, model: str | None, shape: ModelShape | None, dtype: str, backend: str
    ) -> None:
        self._asked = model, shape, dtype
        self._backend = backend
        self._read: dict[str, ModelOnPaper] = {}

    def of(self, backend: str) -> ModelOnPaper:
        """As `backend` computes it, or as the one that was asked for, or else is here.

        Raises as `on_paper`.
        """
        from kakeya_fleet.engine.backends import AUTO, installed_backends

        asked = self._backend
        if asked == AUTO:
            asked = backend if backend in installed_backends() else AUTO
        if asked not in self._read:
            self._read[asked] = on_paper(*self._asked, asked)
        return self._read[asked]


def require_weights(found: ModelOnPaper, weights: str) -> None:
    """Raises `CommandFailed` for a model that has no weights as its products are to take them."""
    if weights not in found.weight_bytes:
        raise CommandFailed("WEIGHT_FORMAT_UNSUPPORTED", f"{found.refused[weights]}.")


def on_paper(model: str | None, shape: ModelShape | None, dtype: str, backend: str) -> ModelOnPaper:
    """What is asked about. Raises `CommandFailed` for a model that cannot be served."""
    if (model is None) == (shape is None):
        raise click.UsageError("name a model, or give its --shape")
    if shape is not None:
        return shape.on_paper(dtype)
    from kakeya_fleet.engine.backends.on_paper import read_on_paper
    from kakeya_fleet.engine.errors import ModelUnusable
    from kakeya_fleet.node.cli.shell.remedies import sentence

    try:
        return read_on_paper(model or "", backend=backend, dtype=dtype)
    except ModelUnusable as error:
        raise CommandFailed(error.reason, sentence(str(error)), metadata=error.metadata) from error

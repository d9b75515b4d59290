"""Proposers by the name that requests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from engine.errors import ModelNotFound
from engine.proposers import ngram
from engine.proposers.contract import Proposer

LOADERS: Mapping[str, Callable[[], Proposer]] = MappingProxyType(
    {ngram.MODEL_ID: ngram.NgramProposer}
)


def load_proposer(name: str) -> Proposer:
    """The proposer `name`; raises `ModelNotFound`, naming those that there are."""
    loader = LOADERS.get(name)
    if loader is None:
        known = ", ".join(sorted(LOADERS))
        raise ModelNotFound(
            f"no proposer is called {name[:64]!r}; there is: {known}",
            model_id=name[:64],
            known_models=known,
        )
    return loader()

"""Evicted stores in a verifier's own process."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.archive_stores import TorchArchiveStores
from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier


def stores_beside(verifier: Verifier) -> TorchArchiveStores | None:
    """Stores in the verifier's own process, whose bytes count in its pool.

    None for a verifier that is not torch's own: its pool has no torch tensors.
    """
    if not isinstance(verifier, TorchVerifier | CompiledVerifier):
        return None
    return TorchArchiveStores(pool=verifier.pool)

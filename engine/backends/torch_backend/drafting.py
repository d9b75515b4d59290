"""Verifiers that draft."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.backends.torch_backend.device import HOST
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.weight_memory import check_weights_fit


def for_drafts(verifier: Verifier, folder: ModelFolder) -> Verifier:
    """`verifier`, or where its forwards are compiled what `CompiledVerifier.for_drafts` makes.

    Raises `OutOfMemory` where a preview does not fit beside the weights.
    """
    if not isinstance(verifier, CompiledVerifier):
        return verifier
    check_weights_fit(folder.path, verifier.preview_bytes, HOST.available_bytes)
    return verifier.for_drafts()

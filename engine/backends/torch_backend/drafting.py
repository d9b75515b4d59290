"""Verifiers that draft."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier


def for_drafts(verifier: Verifier) -> Verifier:
    """`verifier`, or where its forwards are compiled what `CompiledVerifier.for_drafts` makes."""
    return verifier.for_drafts() if isinstance(verifier, CompiledVerifier) else verifier

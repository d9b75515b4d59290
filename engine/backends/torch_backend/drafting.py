"""Verifiers that draft."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.compiled.verifier import CompiledVerifier
from kakeya_fleet.engine.contracts.verifier import Verifier


def for_drafts(verifier: Verifier) -> Verifier:
    """`verifier`, or one of its weights whose logits are those of likely ids alone."""
    return verifier.for_drafts() if isinstance(verifier, CompiledVerifier) else verifier

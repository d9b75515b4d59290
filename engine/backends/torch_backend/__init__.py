"""The torch back end: hub-format checkpoints through transformers' modelling code."""

from engine.backends.torch_backend.new_cache import new_cache
from engine.backends.torch_backend.torch_verifier import load_verifier

__all__ = ["load_verifier", "new_cache"]

"""The torch back end: hub-format checkpoints through transformers' modelling code.

`load_verifier` is in `torch_verifier`: what needs no model, such as an archive's
stores and `new_cache`, imports nothing of transformers, which takes seconds.
"""

from kakeya_fleet.engine.backends.torch_backend.new_cache import new_cache

__all__ = ["new_cache"]

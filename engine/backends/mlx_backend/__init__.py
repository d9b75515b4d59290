"""The MLX back end: hub-format and quantized MLX checkpoints through mlx-lm's modelling code.

Tested on Linux, where MLX computes on the CPU. What a Mac adds is untested
here: Metal's kernels, the rounding of theirs for different numbers of rows
(`engine.verifiers.exactness` finds out when a model is loaded), and speed.
"""

from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import load_verifier
from kakeya_fleet.engine.backends.mlx_backend.new_cache import new_cache

__all__ = ["load_verifier", "new_cache"]

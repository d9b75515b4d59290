"""Masked diffusion: bidirectional masked language models as proposers."""

from engine.backends.torch_backend.masked_diffusion.loading import load_masked_diffusion
from engine.backends.torch_backend.masked_diffusion.proposer import (
    MaskedDiffusionInfo,
    MaskedDiffusionProposer,
)

__all__ = ["MaskedDiffusionInfo", "MaskedDiffusionProposer", "load_masked_diffusion"]

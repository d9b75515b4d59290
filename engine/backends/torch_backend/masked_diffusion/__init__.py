"""Masked diffusion: bidirectional masked language models as proposers."""

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.loading import (
    load_masked_diffusion,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.proposer import (
    MaskedDiffusionInfo,
    MaskedDiffusionProposer,
)

__all__ = ["MaskedDiffusionInfo", "MaskedDiffusionProposer", "load_masked_diffusion"]

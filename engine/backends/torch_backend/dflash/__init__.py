"""The `dflash` proposer: a block-diffusion drafter conditioned on its target's hidden states."""

from engine.backends.torch_backend.dflash.proposer import DFlashProposer, load_dflash

__all__ = ["DFlashProposer", "load_dflash"]

"""The `dflash` proposer: a block-diffusion drafter conditioned on its target's hidden states."""

from kakeya_fleet.engine.backends.torch_backend.dflash.proposer import load_dflash

__all__ = ["load_dflash"]

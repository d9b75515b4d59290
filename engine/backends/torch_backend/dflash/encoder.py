"""The context encoder of a DFlash checkpoint alone, for a verifier's side."""

from __future__ import annotations

from pathlib import Path

import torch

from kakeya_fleet.engine.backends.dflash.config import read_config
from kakeya_fleet.engine.backends.dflash.tensors import ENCODER, ENCODER_NORM, expected_shapes
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import (
    check_tensors,
    read_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights


def load_encoder(folder: Path) -> ContextEncoder:
    """The encoder of the drafter in `folder`; nothing else of it is read.

    All of the checkpoint's tensors must be there all the same. Raises a
    `ModelUnusable`: what is wrong with config or weights.
    """
    config = read_config(folder)
    stored = stored_tensors(folder)
    check_tensors(folder, expected_shapes(config), stored)
    weights = read_tensors(stored, (ENCODER, ENCODER_NORM), torch.float32)
    return ContextEncoder(
        EncoderWeights(
            fc=weights[ENCODER].numpy(),
            norm=weights[ENCODER_NORM].numpy(),
            eps=config.norm_eps,
            taps=config.taps,
        )
    )

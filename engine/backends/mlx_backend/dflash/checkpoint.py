"""A DFlash v1 checkpoint's own tensors: all of them, exactly, or nothing."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, read_config
from kakeya_fleet.engine.backends.dflash.tensors import (
    ENCODER,
    ENCODER_NORM,
    expected_shapes,
    own_tensors,
)
from kakeya_fleet.engine.backends.mlx_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.backends.stored_tensors import StoredTensor, check_tensors, stored_tensors
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights


def read_weights(folder: Path, config: DFlashConfig, dtype: mx.Dtype) -> dict[str, mx.array]:
    """The tensors of layers and norms by their stored names: those of products in `dtype`.

    Norms are in float32; the encoder's tensors are checked and not read. Raises
    `WeightsMismatch` naming what is missing, unexpected, mis-shaped, unreadable
    or not finite.
    """
    stored = _checked(folder, config)
    own = own_tensors(config)
    products = [name for name, shape in own.items() if len(shape) == 2]
    weights = read_tensors(stored, products, dtype)
    return weights | read_tensors(stored, own.keys() - set(products), mx.float32)


def load_encoder(folder: Path) -> ContextEncoder:
    """The context encoder of the drafter in `folder`; nothing else of it is read.

    All of the checkpoint's tensors must be there all the same. Raises a
    `ModelUnusable`: what is wrong with config or weights.
    """
    config = read_config(folder)
    stored = _checked(folder, config)
    weights = read_tensors(stored, (ENCODER, ENCODER_NORM), mx.float32)
    return ContextEncoder(
        EncoderWeights(
            fc=np.array(weights[ENCODER]),
            norm=np.array(weights[ENCODER_NORM]),
            eps=config.norm_eps,
            taps=config.taps,
        )
    )


def _checked(folder: Path, config: DFlashConfig) -> dict[str, StoredTensor]:
    """What is stored in `folder`, all of it and nothing else."""
    stored = stored_tensors(folder)
    check_tensors(folder, expected_shapes(config), stored)
    return stored

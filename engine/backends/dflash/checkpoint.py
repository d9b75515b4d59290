"""A DFlash checkpoint's own tensors: all of them, exactly, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, read_config
from kakeya_fleet.engine.backends.dflash.tensors import (
    ENCODER,
    ENCODER_NORM,
    expected_shapes,
    own_tensors,
)
from kakeya_fleet.engine.backends.stored_tensors import (
    ReadTensors,
    StoredTensor,
    check_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.contracts.evicted_store import Floats
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights

Array = TypeVar("Array")
Dtype = TypeVar("Dtype")


def read_weights(
    folder: Path,
    config: DFlashConfig,
    read: ReadTensors[Dtype, Array],
    *,
    products: Dtype,
    norms: Dtype,
) -> dict[str, Array]:
    """The tensors of layers and norms by their stored names, in the formats of either.

    The encoder's tensors are checked and not read. Raises `WeightsMismatch` naming
    what is missing, unexpected, mis-shaped, unreadable or not finite, and what `read`
    raises.
    """
    stored = _checked(folder, config)
    own = own_tensors(config)
    of_products = [name for name, shape in own.items() if len(shape) == 2]
    weights = read(stored, of_products, products)
    return weights | read(stored, own.keys() - set(of_products), norms)


def load_encoder(
    folder: Path,
    read: ReadTensors[Dtype, Array],
    float32: Dtype,
    host: Callable[[Array], Floats],
    make: Callable[[EncoderWeights], ContextEncoder] = ContextEncoder,
) -> ContextEncoder:
    """The context encoder of the drafter in `folder`, by `make`; nothing else of it is read.

    All of the checkpoint's tensors must be there all the same. Raises a
    `ModelUnusable`: what is wrong with config or weights.
    """
    config = read_config(folder)
    weights = read(_checked(folder, config), (ENCODER, ENCODER_NORM), float32)
    return make(
        EncoderWeights(
            fc=host(weights[ENCODER]),
            norm=host(weights[ENCODER_NORM]),
            eps=config.norm_eps,
            taps=config.taps,
        )
    )


def _checked(folder: Path, config: DFlashConfig) -> dict[str, StoredTensor]:
    """What is stored in `folder`, all of it and nothing else."""
    stored = stored_tensors(folder)
    check_tensors(folder, expected_shapes(config), stored)
    return stored

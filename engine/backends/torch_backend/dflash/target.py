"""The target's part of a drafter: its embedding and its head, read from the target's folder."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.target import EMBEDDING, HEAD, check_target
from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import (
    check_tensors,
    read_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.models.model_folder import ModelFolder


@dataclass(frozen=True, slots=True)
class TargetEnds:
    """`embedding` and `head`, both [vocabulary_size, hidden_size]; one tensor when tied."""

    embedding: Tensor
    head: Tensor


def read_target(
    target: ModelFolder, config: DFlashConfig, dtype: torch.dtype, device: Device = HOST
) -> TargetEnds:
    """The ends of the model in `target`, in `dtype` on `device`; no other tensor is read.

    A tied head that is stored is not read. Raises `TrainedForAnother` when the
    target's layers, hidden size or vocabulary are not those that the drafter's
    config names, and what `read_architecture` and `read_tensors` raise.
    """
    architecture = read_architecture(target.path)
    text = architecture.config
    check_target(target, config, text)
    names = (EMBEDDING,) if text.tie_word_embeddings else (EMBEDDING, HEAD)
    stored = stored_tensors(
        target.path,
        lambda name: name if (name := architecture.text_name(name) or "") in names else None,
    )
    shape = (config.vocabulary_size, config.hidden_size)
    check_tensors(target.path, dict.fromkeys(names, shape), stored)
    weights = read_tensors(stored, names, dtype, device=device)
    return TargetEnds(weights[EMBEDDING], weights[names[-1]])

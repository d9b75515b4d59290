"""A verifier of which this process computes one rank's part, over MLX's ring or over jaccl.

mlx-lm splits its models by heads and by the rows of the feed-forward layers
(Shoeybi et al., "Megatron-LM", 2019): `model.shard(group)`. A rank keeps the keys
and values of its own heads; hidden states and logits are whole on every rank.

The ring neither ends when a peer dies nor asks who connects: whoever starts this
process bounds what it waits for, and kills it. Jaccl, between Macs on Thunderbolt 5,
is joined the same way and was never tried here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from kakeya_fleet.engine.backends.families import RECURRENT
from kakeya_fleet.engine.backends.mlx_backend.architectures import (
    MlxArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.mlx_backend.checkpoint import load_model
from kakeya_fleet.engine.backends.mlx_backend.dtypes import mlx_dtype
from kakeya_fleet.engine.backends.mlx_backend.library import model_module
from kakeya_fleet.engine.backends.mlx_backend.mlx_verifier import (
    MlxVerifier,
    prepare_process,
    verifier_of,
)
from kakeya_fleet.engine.errors import ArchitectureUnsupported, ModelUnusable
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer

RING, JACCL = "ring", "jaccl"
JACCL_MARK = "MLX_JACCL_COORDINATOR"
"""Only set where the ranks have RDMA; then jaccl joins them, and the ring else."""
DIGEST_WORDS = 8
"""A SHA-256 in words of 32 bits."""


class Ranks(Protocol):
    """What the library's `shard` asks of a group, and of the one that is not joined yet."""

    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    def size(self) -> int:
        """How many there are."""
        ...


class _PlannedRanks:
    """Stands in for the group while it is found out whether the model can be split."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


class ModelShard:
    """The part of rank `rank` of `size`; joins the others when the model is cut."""

    def __init__(self, architecture: MlxArchitecture, rank: int, size: int) -> None:
        """Raises `ArchitectureUnsupported` for a family or heads that cannot be split."""
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}")
        self._architecture = architecture
        self._planned = _PlannedRanks(rank, size)
        self.group: mx.distributed.Group | None = None
        """The ranks, once they are joined."""
        if architecture.has_experts:
            raise self._refused("its experts are not split")
        module = model_module(architecture.code.module)
        if not any(hasattr(getattr(module, name, None), "shard") for name in self._owners):
            raise self._refused("mlx-lm does not split this family")
        for count, what in _divided(architecture):
            if count % size:
                raise self._refused(f"it has {count} {what}, which they cannot share evenly")

    def check(self, empty: nn.Module) -> None:
        """Cuts `empty`, a model without weights, and joins nobody.

        Raises `ArchitectureUnsupported` for layers that cannot be split.
        """
        try:
            self._shard(empty, self._planned)
        except (AssertionError, ValueError) as error:
            raise self._refused(str(error)) from error

    def cut(self, model: nn.Module) -> None:
        """Joins the others and makes `model` this rank's part. Nothing is computed yet.

        Blocks until all are there. Raises `ModelUnusable` when they cannot be joined.
        """
        self.group = _joined(self._planned.rank(), self._planned.size())
        self._shard(model, self.group)

    @property
    def _owners(self) -> tuple[str, str]:
        """The model's class, and the one around it that splits Qwen 3.5."""
        return self._architecture.code.model, "Model"

    def _shard(self, model: nn.Module, ranks: Ranks) -> None:
        if hasattr(model, "shard"):
            model.shard(ranks)
            return
        module = model_module(self._architecture.code.module)
        around = SimpleNamespace(language_model=model, layers=model.model.layers)
        module.Model.shard(around, ranks)

    def _refused(self, problem: str) -> ArchitectureUnsupported:
        size = self._planned.size()
        return ArchitectureUnsupported(
            f"{self._architecture.name} cannot be split over {size} ranks: {problem}",
            architecture=self._architecture.name,
            ranks=str(size),
        )


def load_shard(folder: ModelFolder, *, dtype: str, rank: int, size: int) -> MlxVerifier:
    """Rank `rank` of `size` of the model in `folder`; see `engine.backends.load_shard`.

    Joins the others over the ring, whose place and addresses MLX_RANK and MLX_HOSTFILE
    say, or where MLX_JACCL_COORDINATOR is set over jaccl. Nobody is joined before the
    checkpoint was found to be whole and one that can be split. Reads each tensor whole
    and keeps this rank's part of it.
    """
    number = mlx_dtype(dtype)
    architecture = read_architecture(folder.path)
    check_tokenizer(folder.path, architecture.config.vocab_size)
    prepare_process()
    shard = ModelShard(architecture, rank, size)
    _check_environment(rank)
    model = load_model(
        folder.path,
        architecture,
        dtype=number,
        available_bytes=system_memory.available_bytes(),
        shard=shard,
    )
    verifier = verifier_of(folder, architecture, model, dtype=dtype, ranks=size)
    if shard.group is None:
        raise AssertionError("the model was not cut")
    _check_same_weights(shard.group, verifier.info.weights_digest)
    return verifier


def _divided(architecture: MlxArchitecture) -> list[tuple[int, str]]:
    """What is divided evenly among the ranks: how many, of what."""
    config = architecture.config
    heads = int(config.num_attention_heads)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    counts = [(heads, "attention heads"), (int(kv_heads), "key and value heads")]
    if RECURRENT in architecture.layer_kinds:
        counts.append((int(config.linear_num_key_heads), "key heads of its recurrent layers"))
        counts.append((int(config.linear_num_value_heads), "value heads of its recurrent layers"))
    return counts


def _check_environment(rank: int) -> None:
    """Raises `ModelUnusable` unless the environment says how to join, as rank `rank`."""
    given: Mapping[str, str] = os.environ
    wanted = ("MLX_RANK", "MLX_IBV_DEVICES" if given.get(JACCL_MARK) else "MLX_HOSTFILE")
    missing = [name for name in wanted if not given.get(name)]
    if missing:
        raise ModelUnusable(
            f"rank {rank} cannot join the others: {', '.join(missing)} is not set", rank=str(rank)
        )
    file = Path(given[wanted[1]])
    if given["MLX_RANK"] != str(rank) or not file.is_file():
        raise ModelUnusable(
            f"rank {rank} cannot join the others: MLX_RANK is {given['MLX_RANK']} and"
            f" {wanted[1]} {file}",
            rank=str(rank),
        )


def _joined(rank: int, size: int) -> mx.distributed.Group:
    """The group of all ranks; it blocks until they are there. Raises `ModelUnusable`."""
    backend = JACCL if os.environ.get(JACCL_MARK) else RING
    try:
        group = mx.distributed.init(strict=True, backend=backend)
    except RuntimeError as error:
        raise ModelUnusable(
            f"rank {rank} of {size} does not find the others over {backend}: {error}",
            rank=str(rank),
        ) from error
    if (group.rank(), group.size()) != (rank, size):
        raise ModelUnusable(
            f"the {backend} has {group.size()} ranks and this is {group.rank()}, not rank {rank}"
            f" of {size}",
            rank=str(rank),
        )
    return group


def _check_same_weights(group: mx.distributed.Group, digest: str) -> None:
    """Raises `ModelUnusable` unless all ranks have this checkpoint, in the order of their ranks."""
    words = [int(digest[8 * i : 8 * i + 8], 16) for i in range(DIGEST_WORDS)]
    own = mx.array([group.rank(), *words], dtype=mx.uint32)
    found = mx.distributed.all_gather(own[None], group=group)
    mx.eval(found)
    wanted = np.array([[rank, *words] for rank in range(group.size())], np.uint32)
    different = np.flatnonzero((np.array(found) != wanted).any(axis=1))
    if different.size:
        raise ModelUnusable(
            f"ranks {', '.join(map(str, different))} have other weights than rank"
            f" {group.rank()}, or are no ranks of this group",
            rank=str(group.rank()),
        )

"""A verifier of which this process computes one rank's part."""

from __future__ import annotations

from kakeya_fleet.engine.backends.torch_backend.architectures import read_architecture
from kakeya_fleet.engine.backends.torch_backend.checkpoint import load_model
from kakeya_fleet.engine.backends.torch_backend.dtypes import torch_dtype
from kakeya_fleet.engine.backends.torch_backend.layer_plan import kv_layout
from kakeya_fleet.engine.backends.torch_backend.sharding_group import GlooRanks
from kakeya_fleet.engine.backends.torch_backend.sharding_plan import ModelShard, RankSum
from kakeya_fleet.engine.backends.torch_backend.torch_verifier import TorchVerifier, verifier_of
from kakeya_fleet.engine.contracts.positions import WIDTH
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.tokenizer_check import check_tokenizer


def load_shard(folder: ModelFolder, *, dtype: str, rank: int, size: int) -> TorchVerifier:
    """Rank `rank` of `size` of the model in `folder`; see `engine.backends.load_shard`.

    Joins the others over gloo, at MASTER_ADDR:MASTER_PORT.
    """
    return shard_of(folder, dtype=dtype, rank=rank, size=size, add=GlooRanks(rank, size))


def shard_of(
    folder: ModelFolder, *, dtype: str, rank: int, size: int, add: RankSum
) -> TorchVerifier:
    """As `load_shard`, with ranks that add up by `add`."""
    number = torch_dtype(dtype)
    architecture = read_architecture(folder.path)
    check_tokenizer(folder.path, architecture.config.vocab_size)
    model = load_model(
        folder.path,
        architecture,
        dtype=number,
        rows=WIDTH,
        available_bytes=system_memory.available_bytes(),
        shard=ModelShard(architecture, rank, size, add),
    )
    layout = kv_layout(architecture, number, ranks=size)
    return verifier_of(folder, architecture, model, layout, dtype)

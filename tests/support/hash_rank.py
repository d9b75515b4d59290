"""A rank's process whose part of the model is made of hashes: it starts at once.

The model's name says what it does: `refused` cannot be split, `crash` has a fault
on rank 1, `another` has other weights there, `late` never gets ready.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from kakeya_fleet.engine.errors import ArchitectureUnsupported
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.node.roles.groups import rank_process
from tests.support.hash_verifier import HashVerifier
from tests.support.replacing import replace_method


def _resolve(model: str, **_: object) -> ModelFolder:
    return ModelFolder(Path("/nowhere"), model)


def _load_shard(folder: ModelFolder, *, rank: int, **_: object) -> HashVerifier:
    if folder.model_id == "refused":
        raise ArchitectureUnsupported("hashes cannot be split", architecture="hash")
    if folder.model_id == "crash" and rank == 1:
        os._exit(7)
    if folder.model_id == "late":
        time.sleep(60)
    verifier = HashVerifier()
    digest = "1" if folder.model_id == "another" and rank == 1 else "0"
    verifier.info = replace(verifier.info, weights_digest=digest * 64, backend="torch")
    return verifier


# `unittest.mock` takes a fifth of what a rank imports.
replace_method(rank_process, "resolve_model", _resolve)
replace_method(rank_process, "load_shard", _load_shard)
rank_process.main()

"""A map of a rank is in two parts: the first is the verifier's side's, on every back end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from kakeya_fleet.engine.backends import load_encoder, load_map_encoder
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    ProjectionConfig,
    RestoredLayer,
    Source,
    load_projection,
    save_projection,
)
from kakeya_fleet.engine.errors import ModelUnusable, WeightsMismatch
from kakeya_fleet.engine.models.digests import weights_digest
from kakeya_fleet.engine.restoration.learned_map import LearnedMap, read_map
from scripts.train.tiny_dflash import write_random_dflash

RANK = 20


@pytest.fixture
def drafter(random_checkpoint: Callable[..., Path], tmp_path: Path) -> Path:
    return write_random_dflash(tmp_path / "drafter", random_checkpoint())


def write_map(drafter: Path, rank: int, source: Source = Source.FEATURES) -> LearnedMap:
    spec = load_encoder(drafter).spec
    projection = Projection(
        ProjectionConfig(
            source=source,
            width=spec.width,
            rank=rank,
            layers=(RestoredLayer(1, 32, key_norm=True),) * 2,
            norm_eps=1e-6,
            rotary_scaling=1.0,
            verifier_model_id="random",
            verifier_digest=weights_digest(drafter),
            encoder_digest=spec.digest,
            drafter_layers=1,
            drafter_kv_heads=1,
            drafter_head_dim=32,
        )
    )
    save_projection(projection, drafter / "restorer", torch.bfloat16)
    return read_map("drafter", drafter)


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_both_parts_make_the_keys_of_the_whole_map(drafter: Path, backend: str) -> None:
    found = write_map(drafter, RANK)
    assert (found.width, found.narrows, found.spec.width) == (RANK, True, RANK)
    plain, narrowed = (
        load_encoder(drafter, backend=backend),
        load_map_encoder(found, backend=backend),
    )
    assert narrowed.spec.width == RANK
    assert narrowed.spec.digest == plain.spec.digest == found.encoder_digest
    spec = plain.spec
    features = np.random.default_rng(1).standard_normal(
        (37, len(spec.taps), spec.hidden_size), np.float32
    )
    vectors, deposited = plain.encode(features), narrowed.encode(features)
    assert deposited.shape == (37, RANK)
    positions = torch.arange(37)
    projection = load_projection(found.path)
    assert projection.config.deposited == RANK
    whole = projection.keys_values(torch.from_numpy(vectors), positions)
    parts = projection.restored(torch.from_numpy(deposited), positions)
    for one, other in zip(whole, parts, strict=True):
        for mine, its in zip(one, other, strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)
    # A row's bits are its own.
    for first, end in ((0, 1), (5, 8), (3, 36)):
        assert narrowed.encode(features[first:end]).tobytes() == deposited[first:end].tobytes()


def test_a_map_that_does_not_narrow_takes_the_drafters_vectors(drafter: Path) -> None:
    for rank, source in ((0, Source.FEATURES), (RANK, Source.KEYS_VALUES)):
        found = write_map(drafter, rank, source)
        assert not found.narrows
        encoder = load_map_encoder(found)
        assert encoder.spec == load_encoder(drafter).spec
        assert found.width == encoder.spec.width == load_projection(found.path).config.deposited


def test_a_first_part_that_is_missing_or_of_another_shape_is_named(drafter: Path) -> None:
    found = write_map(drafter, RANK)
    weights = found.path / "model.safetensors"
    tensors = load_file(weights)
    for bad in (None, tensors["down.weight"][:, :-1], torch.full((RANK, found.width), torch.nan)):
        kept = {name: each for name, each in tensors.items() if name != "down.weight"}
        if bad is not None:
            kept["down.weight"] = bad.contiguous()
        save_file(kept, weights)
        for backend in ("torch", "mlx"):
            with pytest.raises(WeightsMismatch, match=r"down\.weight"):
                load_map_encoder(found, backend=backend)


def test_a_config_without_a_rank_is_refused(drafter: Path) -> None:
    found = write_map(drafter, RANK)
    config = found.path / "config.json"
    config.write_text(config.read_text().replace('"rank"', '"ranks"'))
    with pytest.raises(ModelUnusable, match="rank"):
        read_map("drafter", drafter)

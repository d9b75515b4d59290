"""Two real ranks of MLX over its ring: one verifier, as if it were in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import installed_backends, load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.groups.running_group import RunningGroup
from tests.support import rank_groups as groups

RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
HISTORY = [(11 * index + index * index // 7) % 96 for index in range(36)]


# What ranks of MLX compute is held by `test_mlx_sharding.py`, a group's life by
# `test_running_group.py`.
@pytest.mark.wide
@pytest.mark.skipif("mlx" not in installed_backends(), reason="MLX is not installed")
def test_a_group_over_the_ring_decides_as_one_process(
    random_checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    folder = random_checkpoint("Qwen3ForCausalLM", initializer_range=0.12)
    hostfile = groups.write_hostfile(tmp_path, backend="ring")
    source = GroupSource(hostfile, limits=GroupLimits(start_seconds=60.0))
    settings = source.settings(str(folder), dtype="float32", backend="auto")
    lost: list[str] = []
    group = RunningGroup(settings, lost.append)
    try:
        verifier = group.ready.result(60)
        alone = load_verifier(ModelFolder(folder, folder.name), backend="mlx")
        assert (verifier.info.backend, verifier.rank_count) == ("mlx", 2)
        found: list[Logits] = []
        expected: list[Logits] = []
        for each, logits in ((verifier, found), (alone, expected)):
            cache = each.allocate(RING)
            for first in range(0, len(HISTORY), 12):
                output = each.forward(cache, HISTORY[first : first + 12], want_logits=True)
                assert output is not None
                logits.append(output)
        assert np.abs(np.stack(found) - np.stack(expected)).max() <= 1e-5
        assert np.array_equal(np.stack(found).argmax(2), np.stack(expected).argmax(2))
        ranks = groups.ranks_of()
        # A ring does not notice that a peer is gone: the leader does.
        ranks[0].kill()
        groups.wait_until(lambda: bool(lost) and groups.gone(ranks))
    finally:
        group.close()

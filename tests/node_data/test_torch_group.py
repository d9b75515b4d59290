"""Two real ranks of torch over gloo: one verifier, as if it were in one process."""

from __future__ import annotations

import ipaddress

import numpy as np
import psutil
import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.groups.running_group import RunningGroup
from tests.support import rank_groups as groups

FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=200)
RING = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
HISTORY = [(11 * index + index * index // 7) % 96 for index in range(60)]


@pytest.fixture(scope="module")
def both(random_checkpoint, tmp_path_factory):
    """The same model in a group of two ranks, and in this process."""
    # Of one family: what differs between them is in tests/engine/test_sharding.py.
    folder = random_checkpoint("Qwen3ForCausalLM", initializer_range=0.12)
    hostfile = groups.write_hostfile(tmp_path_factory.mktemp("group"))
    source = GroupSource(hostfile, limits=GroupLimits(start_seconds=90.0))
    settings = source.settings(str(folder), dtype="float32", backend="torch")
    group = RunningGroup(settings, lambda _reason: None)
    try:
        alone = load_verifier(ModelFolder(folder, folder.name), backend="torch")
        yield group.ready.result(90), alone
    finally:
        group.close()
    assert groups.ranks_of() == []


def logits_of(verifier, spec, block, history=HISTORY):
    cache = verifier.allocate(spec)
    try:
        return np.concatenate(
            [
                verifier.forward(cache, history[first : first + block], want_logits=True)
                for first in range(0, len(history), block)
            ]
        )
    finally:
        cache.release()


@pytest.mark.parametrize("spec", [FULL, RING], ids=["full", "window"])
def test_logits_are_those_of_one_process_and_no_cut_changes_them(both, spec) -> None:
    group, alone = both
    expected = logits_of(alone, spec, 16)
    found = logits_of(group, spec, 16)
    assert expected.std() > 0.3
    assert np.abs(found - expected).max() <= 1e-5
    assert np.array_equal(found.argmax(1), expected.argmax(1))
    for block in (1, 5):
        assert logits_of(group, spec, block).tobytes() == found.tobytes()


def test_interleaved_sessions_and_forks_do_not_change_each_other(both) -> None:
    group, _ = both
    expected = logits_of(group, RING, 16)
    first, second = group.allocate(RING), group.allocate(FULL)
    group.forward(first, HISTORY[:16], want_logits=False)
    group.forward(second, HISTORY[40:56], want_logits=False)
    group.forward(first, HISTORY[16:30], want_logits=False)
    forked = first.fork(28)
    feeds = [
        Feed(first, HISTORY[30:35], True, (1,)),
        Feed(second, HISTORY[:3], True),
        Feed(forked, [*HISTORY[28:30], 5], True),
    ]
    outputs = group.forward_batch(feeds)
    assert outputs[0].logits.tobytes() == expected[30:35].tobytes()
    assert outputs[0].features.shape == (5, 1, group.info.hidden_size)
    assert outputs[2].logits[:2].tobytes() == expected[28:30].tobytes()
    forked.truncate(30)
    again = group.forward(forked, HISTORY[30:40], want_logits=True)
    assert again.tobytes() == expected[30:40].tobytes()
    for cache in (first, second, forked):
        cache.release()


def test_ranks_of_one_host_are_reached_from_nowhere_else(both) -> None:
    listening = [
        entry.laddr.ip
        for rank in groups.ranks_of()
        for entry in rank.net_connections("tcp")
        if entry.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert all(ipaddress.ip_address(ip).is_loopback for ip in listening), listening


def test_bytes_are_those_of_one_rank(both) -> None:
    group, alone = both
    assert 2 * group.bytes_needed(RING) == alone.bytes_needed(RING)
    assert 2 * group.info.kv_bytes_per_token == alone.info.kv_bytes_per_token
    assert group.info.weights_digest == alone.info.weights_digest

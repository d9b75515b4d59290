"""Memory that the machine has not: a named refusal that takes nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch

from kakeya_fleet.engine.errors import OutOfKvMemory, OutOfMemory
from kakeya_fleet.engine.memory.allocation import told_as_shortage, told_as_unloadable
from kakeya_fleet.engine.memory.slab_pool import SlabPool
from tests.support.slab_pools import spare_bytes

TOO_MUCH = 1 << 58


def by_torch() -> object:
    return torch.zeros(TOO_MUCH)


def by_numpy() -> object:
    return np.zeros(TOO_MUCH)


def by_metal() -> object:
    raise RuntimeError("[malloc] Unable to allocate 1152921504606846976 bytes.")


@pytest.mark.parametrize("allocate", [by_torch, by_numpy, by_metal])
def test_a_refused_allocation_is_out_of_memory_by_name(allocate: object) -> None:
    pool: SlabPool[object] = SlabPool(lambda _: None)
    assert callable(allocate)
    with pytest.raises(OutOfKvMemory, match=r"machine has no memory left .*kv_budget_bytes"):
        pool.take("kind", 1024, allocate)
    assert (pool.held_bytes, spare_bytes(pool)) == (0, 0)


@pytest.mark.parametrize("allocate", [by_torch, by_numpy, by_metal])
def test_a_load_that_is_refused_memory_in_the_middle_says_so_by_name(allocate: object) -> None:
    assert callable(allocate)
    folder = Path("some-model")
    with pytest.raises(OutOfMemory, match="does not fit") as refused, told_as_unloadable(folder):
        allocate()
    assert refused.value.metadata["path"] == "some-model"


def test_another_fault_keeps_its_name() -> None:
    with pytest.raises(RuntimeError, match="shapes"), told_as_shortage():
        raise RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"), told_as_unloadable(Path("some-model")):
        raise RuntimeError("shapes do not match")

"""What was set aside and removed is freed, also what a call that is ending holds."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from kakeya_fleet.engine import backends
from kakeya_fleet.node.roles import cycles
from tests.support.calls import until


class Model:
    """Refers to itself, as a model's modules do."""

    def __init__(self) -> None:
        self.module = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    cycles._free()
    gc.set_threshold(*thresholds)


async def test_what_was_set_aside_is_freed_once_it_is_removed() -> None:
    model = Model()
    removed = weakref.ref(model)
    cycles.set_aside()
    del model
    gc.collect()
    assert removed() is not None
    await cycles.free_removed()
    assert removed() is None


async def test_a_call_that_is_ending_does_not_keep_a_model_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycles, "ENDED_SECONDS", 0.05)
    call = Model()
    removed = weakref.ref(call)
    cycles.set_aside()
    await cycles.free_removed()
    assert not gc.get_freeze_count()
    # It ends only now.
    del call
    await until(lambda: removed() is None)
    await until(gc.get_freeze_count)


async def test_what_a_load_makes_is_set_aside_too_and_not_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gc.unfreeze()
    cycles.set_loaded_aside()
    assert not gc.get_freeze_count()
    cycles.set_aside()
    before = gc.get_freeze_count()
    passes = gc.get_stats()[2]["collections"]
    with backends._no_collection():
        monkeypatch.setitem(sys.modules, "a_library", ModuleType("a_library"))
        imported = [Model() for _ in range(50_000)]
    assert gc.get_freeze_count() >= before + len(imported)
    loaded = [Model() for _ in range(1_000)]
    cycles.set_loaded_aside()
    assert gc.get_freeze_count() >= before + len(imported) + len(loaded)
    assert gc.get_stats()[2]["collections"] == passes
    removed = weakref.ref(loaded.pop())
    await cycles.free_removed()
    assert removed() is None


async def test_nothing_is_set_aside_that_was_not() -> None:
    gc.unfreeze()
    await cycles.free_removed()
    assert not gc.get_freeze_count()


def test_what_outlived_the_young_is_looked_through_once_it_is_time() -> None:
    ended = Model()
    removed = weakref.ref(ended)
    gc.collect()
    del ended
    cycles.free_ended()
    assert removed() is not None
    for _ in range(cycles.ENDED_PASSES):
        gc.collect(1)
    assert removed() is not None
    cycles.free_ended()
    assert removed() is None

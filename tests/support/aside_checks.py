"""What is set aside, looked at in a process that is nothing else.

    python -m tests.support.aside_checks

says the name of each check that held; the first that does not ends it. To free what was set aside
looks through all that there is: in a process that runs tests a million objects, each time.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Coroutine
from types import ModuleType
from unittest.mock import patch

from kakeya_fleet.engine import backends
from kakeya_fleet.node.roles import cycles
from tests.support.calls import until


class Model:
    """Refers to itself, as a model's modules do."""

    def __init__(self) -> None:
        self.module = self


async def what_was_set_aside_is_freed_once_it_is_removed() -> None:
    model = Model()
    removed = weakref.ref(model)
    cycles.set_aside()
    del model
    gc.collect()
    assert removed() is not None
    await cycles.free_removed()
    assert removed() is None


async def a_call_that_is_ending_does_not_keep_a_model_for_ever() -> None:
    with patch.object(cycles, "ENDED_SECONDS", 0.05):
        call = Model()
        removed = weakref.ref(call)
        cycles.set_aside()
        await cycles.free_removed()
        assert not gc.get_freeze_count()
        # It ends only now.
        del call
        await until(lambda: removed() is None)
        await until(gc.get_freeze_count)


async def what_a_load_makes_is_set_aside_too_and_not_looked_through() -> None:
    gc.unfreeze()
    cycles.set_loaded_aside()
    assert not gc.get_freeze_count()
    cycles.set_aside()
    before = gc.get_freeze_count()
    passes = gc.get_stats()[2]["collections"]
    with patch.dict(sys.modules), backends._no_collection():
        for number in range(backends.MANY_MODULES):
            sys.modules[f"a_library.part_{number}"] = ModuleType("a_library")
        imported = [Model() for _ in range(50_000)]
    assert gc.get_freeze_count() >= before + len(imported)
    loaded = [Model() for _ in range(1_000)]
    cycles.set_loaded_aside()
    assert gc.get_freeze_count() >= before + len(imported) + len(loaded)
    assert gc.get_stats()[2]["collections"] == passes
    removed = weakref.ref(loaded.pop())
    await cycles.free_removed()
    assert removed() is None


async def nothing_is_set_aside_that_was_not() -> None:
    gc.unfreeze()
    await cycles.free_removed()
    assert not gc.get_freeze_count()


async def what_the_program_around_it_set_aside_stays() -> None:
    kept = Model()
    gc.freeze()
    removed = Model()
    gone = weakref.ref(removed)
    del removed
    await cycles.free_removed()
    assert gone() is None
    assert gc.get_freeze_count()
    assert kept.module is kept


async def what_outlived_the_young_is_looked_through_once_it_is_time() -> None:
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


Check = Callable[[], Coroutine[None, None, None]]
CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        what_was_set_aside_is_freed_once_it_is_removed,
        a_call_that_is_ending_does_not_keep_a_model_for_ever,
        what_a_load_makes_is_set_aside_too_and_not_looked_through,
        nothing_is_set_aside_that_was_not,
        what_the_program_around_it_set_aside_stays,
        what_outlived_the_young_is_looked_through_once_it_is_time,
    )
}


def main() -> None:
    """Runs them all, each as the process began."""
    thresholds = gc.get_threshold()
    for name, check in CHECKS.items():
        asyncio.run(check())
        cycles._free()
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
